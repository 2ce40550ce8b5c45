"""Three labels a node, FP32, FP16 and BF16: alpha-expansion over exact minimum cuts.

minimise  sum time_i(l_i) + sum over wires cast (kinds of readers unlike the producer) + multiplier sum s²_i(l_i)

A tensor is cast once for each format that readers take and its producer does not give. With three labels the exact
optimum is NP-hard (Y. Boykov, O. Veksler, R. Zabih, Fast approximate energy minimization via graph cuts, PAMI 23, 2001,
which is where the method is from). A move offers one label to all vertices at once, and each takes it or stays: over all
2^n answers to one offer the minimum cut is exact, since every term is submodular in them. Labels are offered in turn until
no offer lowers the sum; so the result is optimal against every change to any one label, and for costs of two ends within
twice the optimum.

Vertices that only move numbers are free to take any label here; what they follow is counted when a price is asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.cut import source_side
from parityscope.repairs.search.network import F32, OUTSIDE, count_casts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.repairs.search.network import CutNetwork, Wire

LABELS = ("f32", "f16", "bf16")
F16, BF16 = 1, 2
_ROUNDS = 8  # chosen; two or three have been enough

Term = tuple[int, int, float, float]


def expand_labels(network: CutNetwork, squared: np.ndarray, multiplier: float, start: np.ndarray) -> np.ndarray:
    """Labels that no offer of one label improves: int, (vertices,).

    squared: float64, (labels, decisions); infinite where a decision must not have the label. start: int, (vertices,).
    """
    labels, least = start, total_cost(network, squared, multiplier, start)
    for _ in range(_ROUNDS):
        before = least
        for label in (BF16, F16, F32):
            offered = best_move_to_label(network, squared, multiplier, labels, label)
            cost = total_cost(network, squared, multiplier, offered)
            if cost < least:
                labels, least = offered, cost
        if least >= before:
            break
    return labels


def best_move_to_label(
    network: CutNetwork, squared: np.ndarray, multiplier: float, labels: np.ndarray, label: int
) -> np.ndarray:
    """The best labels of those in which every vertex keeps its own or takes `label`: int, (vertices,).

    Arguments are those of `expand_labels`; labels: int, (vertices,), indices into `LABELS`.
    """
    count = len(network.vertices)
    stay, take = count, count + 1  # the source and the sink
    terms: list[Term] = []
    for index in range(count):
        own = int(labels[index])
        cost = _vertex_cost(network, squared, multiplier, index, own)
        terms.append((index, take, math.inf if own == label else cost, 0.0))
        terms.append((stay, index, _vertex_cost(network, squared, multiplier, index, label), 0.0))
    spare = iter(range(count + 2, count + 2 + (len(LABELS) + 1) * len(network.wires)))
    for wire in network.wires:
        terms.extend(_terms_of_wire(wire, labels, label, (stay, take), spare))
    keeps = source_side(terms, count + 2 + (len(LABELS) + 1) * len(network.wires), stay, take)[:count]
    return np.where(keeps, labels, label)


def total_cost(network: CutNetwork, squared: np.ndarray, multiplier: float, labels: np.ndarray) -> float:
    """The sum that is minimised, in seconds, of labels of all vertices: int, (vertices,).

    squared: float64, (labels, decisions), and multiplier as for `expand_labels`.
    """
    alone = sum(_vertex_cost(network, squared, multiplier, index, int(label)) for index, label in enumerate(labels))
    return alone + sum(wire.cast * count_casts(wire, labels) for wire in network.wires)


def _vertex_cost(network: CutNetwork, squared: np.ndarray, multiplier: float, index: int, label: int) -> float:
    vertex = network.vertices[index]
    seconds = vertex.times.full if label == F32 else vertex.times.low
    if vertex.decision is None:
        return seconds
    error = float(squared[label, vertex.decision])
    return math.inf if math.isinf(error) else seconds + multiplier * error


def _terms_of_wire(
    wire: Wire, labels: np.ndarray, label: int, ends: tuple[int, int], spare: Iterator[int]
) -> Iterator[Term]:
    """The terms of one tensor. What is outside is in FP32: it has taken `label` if that is FP32, and stays otherwise."""
    stay, take = ends
    outside = take if label == F32 else stay

    def place(vertex: int) -> int:
        return outside if vertex == OUTSIDE else vertex

    def own(vertex: int) -> int:
        return F32 if vertex == OUTSIDE else int(labels[vertex])

    producer, given = place(wire.producer), own(wire.producer)
    groups: dict[int, list[int]] = {}
    for reader in wire.consumers:
        groups.setdefault(own(reader), []).append(place(reader))
    for held, readers in groups.items():
        if held == label:
            continue
        # Somebody still reads it as `held`: needs a Cast unless the producer still gives that.
        some = next(spare)
        yield from ((reader, some, math.inf, 0.0) for reader in readers)
        yield some, producer if given == held else take, wire.cast, 0.0
    if given == label:
        return
    if label in groups:  # somebody reads it as `label` whatever the answers are: a Cast unless the producer takes it
        yield producer, take, wire.cast, 0.0
        return
    some = next(spare)
    yield producer, some, wire.cast, 0.0
    yield from ((some, reader, math.inf, 0.0) for readers in groups.values() for reader in readers)
