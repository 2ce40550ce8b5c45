"""BF16 as a third label: what a search with FP16 and FP32 has chosen, offered BF16.

BF16 has FP32's range and is as fast as FP16: a node that is kept in FP32 because it overflows in FP16 can be in BF16 where
its coarser rounding (2^-9 against 2^-12) fits into the budget. Its squared sensitivities come from backward passes with
BF16's roundings (`reverse`); a node of which none are known is offered BF16 only if it is kept. Labellings that are
cheaper by the cost model come from `expand_labels` for growing prices on error, and from "all that is kept in BF16"; the cheapest
that is predicted to meet the target is evaluated first, as the model that would be written, de-typed, on the search samples up
to the first that misses the target.

Three labels a node, FP32, FP16 and BF16: alpha-expansion over exact minimum cuts.

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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.float8 import IN_FP8
from parityscope.arithmetic.simulation import arrange_precision
from parityscope.arithmetic.typed import typed_model
from parityscope.evaluation.simulating import open_simulation
from parityscope.light_dataclasses import dataclass, replace
from parityscope.repairs.search.cut import source_side
from parityscope.repairs.search.fp8 import chosen_products
from parityscope.repairs.search.network import F32, OUTSIDE, count_casts, price_assignment, resolve_labels
from parityscope.repairs.search.oracle import Spent
from parityscope.repairs.search.writing import typed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from parityscope.arithmetic.float8 import Scalings
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.case import Model
    from parityscope.repairs.search.finding import Finder
    from parityscope.repairs.search.network import CutNetwork, Wire
    from parityscope.repairs.search.records import Flag, KeptNode, Point

_LABELS = ("f32", "f16", "bf16")
F16, BF16 = 1, 2
_ROUNDS = 8  # chosen; two or three have been enough

_Term = tuple[int, int, float, float]
_EVALUATED = 6  # labellings that are run at most. Chosen
_PRICES = 13  # multipliers, over twelve decades as in `cut.path_of_optima`. Chosen
_GAIN = 0.002  # of the modelled time; less is not worth an evaluation. Chosen
_OPTIMISM = 1.5  # predicted squares that are still worth an evaluation, times the target. Chosen


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
    terms: list[_Term] = []
    for index in range(count):
        own = int(labels[index])
        cost = _vertex_cost(network, squared, multiplier, index, own)
        terms.append((index, take, math.inf if own == label else cost, 0.0))
        terms.append((stay, index, _vertex_cost(network, squared, multiplier, index, label), 0.0))
    spare = iter(range(count + 2, count + 2 + (len(_LABELS) + 1) * len(network.wires)))
    for wire in network.wires:
        terms.extend(_terms_of_wire(wire, labels, label, (stay, take), spare))
    keeps = source_side(terms, count + 2 + (len(_LABELS) + 1) * len(network.wires), stay, take)[:count]
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
) -> Iterator[_Term]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What labellings need beside what the finder knows."""

    model: Model
    products: Mapping[str, Scalings]
    unwritable: Iterable[str]
    threads: int
    full: str


def offer_second_format(finder: Finder, point: Point, target: float, second: Second) -> tuple[Point, frozenset[str]]:
    """The point with some nodes in BF16 where that is cheaper and meets the target, and their names; else itself.

    It is itself, too, where time or evaluations do not reach for more.
    """
    names = finder.oracle.names
    start = np.array([F32 if name in set(point.kept) else F16 for name in names], np.intp)
    squared = _squared_sensitivities(finder, start, second)
    for labels in _list_candidates(finder, start, squared, target, point.seconds)[:_EVALUATED]:
        try:
            worst = finder.oracle.labelled(labels, target, partial(_open_written, names, labels, second))
        except Spent:
            finder.spent = True
            break
        if worst <= target:
            cost = price_assignment(finder.network, labels)
            kept = tuple(name for name, label in zip(names, labels, strict=True) if label != F16)
            brain = frozenset(name for name, label in zip(names, labels, strict=True) if label == BF16)
            chosen = replace(
                point,
                step="with BF16",
                kept=kept,
                excess=worst,
                seconds=cost.seconds,
                flops=cost.flops,
                casts=cost.casts,
            )
            finder.offers[chosen] = brain
            return chosen, brain
    return point, frozenset()


def kept_in_bf16(kept: Iterable[KeptNode], brain: frozenset[str], flagged: Iterable[Flag]) -> tuple[KeptNode, ...]:
    """The kept nodes with the format of those in BF16, and why they are: FP16's range, or Casts that it saves."""
    beyond = {flag.node for flag in flagged}
    return tuple(
        replace(one, format=_LABELS[BF16], reason=f"in BF16: {one.reason if one.node in beyond else 'it saves Casts'}")
        if one.node in brain
        else one
        for one in kept
    )


def _squared_sensitivities(finder: Finder, start: np.ndarray, second: Second) -> np.ndarray:
    """Squared sensitivities: float64, (labels, decisions), infinite where a label is not to be had."""
    names = finder.oracle.names
    squared = np.zeros((len(_LABELS), len(names)))
    if finder.sensed is not None:
        squared[F16] = finder.sensed.squared
    squared[F16, finder.pinned & (start != F16)] = np.inf
    before = finder.oracle.passes
    estimate = finder.oracle.estimated(replace(finder.reverse, low="bf16")) if finder.reverse is not None else None
    finder.excused += finder.oracle.passes - before
    known = estimate.squared if estimate is not None else {}
    unwritable = set(second.unwritable)
    for place, name in enumerate(names):
        unknown = 0.0 if start[place] == F32 else np.inf
        out = name in unwritable or name.endswith(IN_FP8)
        squared[BF16, place] = np.inf if out else known.get(name, unknown)
    return squared


def _list_candidates(
    finder: Finder, start: np.ndarray, squared: np.ndarray, target: float, seconds: float
) -> list[np.ndarray]:
    """Labels of decisions that are cheaper than what there is, and predicted to meet the target; the cheapest first."""
    everything = np.arange(len(start))
    kept = np.where((start == F32) & np.isfinite(squared[BF16]), BF16, start)
    found = [kept]
    finite = squared[np.isfinite(squared)]
    network = finder.network
    time = sum(vertex.times.full for vertex in network.vertices) + sum(wire.cast for wire in network.wires)
    vertices = resolve_labels(network, start)
    for step in range(_PRICES):
        multiplier = time / max(float(finite.sum()), np.finfo(float).tiny) * 10.0 ** (step - 4.0)
        labels = expand_labels(network, squared, multiplier, vertices)
        decided = start.copy()
        for vertex, label in zip(network.vertices, labels, strict=True):
            if vertex.decision is not None:
                decided[vertex.decision] = label
        found.append(decided)
    told: dict[bytes, tuple[float, np.ndarray]] = {}
    for labels in found:
        predicted = float(squared[labels, everything].sum())
        cost = price_assignment(network, labels).seconds
        if (labels == BF16).any() and cost < seconds * (1 - _GAIN) and predicted <= _OPTIMISM * target**2:
            told[labels.tobytes()] = cost, labels
    return [labels for _, labels in sorted(told.values(), key=lambda one: one[0])]


def _open_written(names: Sequence[str], labels: np.ndarray, second: Second) -> Run:
    """A session of the model that would be written, de-typed."""
    kept = {name: _LABELS[label] for name, label in zip(names, labels, strict=True) if label != F16}
    eighths = chosen_products(second.products, kept)
    nodes = {name: held for name, held in kept.items() if not name.endswith(IN_FP8)}
    graph = second.model.graph()
    deciding = typed_names(second.model.graph(), "f16", eighths)
    nodes = {name: held for name, held in nodes.items() if name in deciding}
    made = typed_model(graph, "f16", nodes, products=eighths, inside=True)
    return open_simulation(
        arrange_precision(made.model, None if second.full == "f32" else second.full), threads=second.threads
    )
