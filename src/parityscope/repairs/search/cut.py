"""The assignment of least cost for a price on error: an exact minimum cut.

minimise  sum time_i(p_i) + sum cast_e [the ends of e differ] + multiplier sum s²_i [i is low],  pinned nodes full.

All pairwise terms are submodular, so that a minimum s-t cut is the exact optimum (V. Kolmogorov and R. Zabih, What
energy functions can be minimized via graph cuts?, PAMI 2004). Source side = full precision. A tensor with several
consumers is cast once: an auxiliary vertex for each direction stands for "some consumer is low" and "some is full".
An operator that only moves what several producers give is full if one of them is; it may also stay full when none is,
where that saves a Cast of a larger tensor.

Capacities are whole numbers: seconds times a scale of 2^48 over the largest term, so that each of the m capacities is
off by at most half a unit, and the cut found is within m / scale seconds of the optimum: 1e-12 of the largest term for
a thousand nodes. Infinite capacities are the sum of all others plus one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.repairs.search.maxflow import Arc, minimum_cut
from parityscope.repairs.search.network import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.repairs.search.network import CutNetwork

__all__ = ["Assignment", "cheapest_assignment", "path_of_optima", "source_side"]

_SCALE = 1 << 48
_STEPS = 40  # multipliers on a path: 12 decades in steps of two
_DECADES = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An optimum: what is low, bool (decisions,) and (vertices,), and the multiplier it is the optimum of."""

    low: np.ndarray
    vertices: np.ndarray
    multiplier: float


def cheapest_assignment(
    network: CutNetwork, sensitivities: np.ndarray, multiplier: float, pinned: np.ndarray
) -> Assignment:
    """The exact optimum for a multiplier in seconds a unit of squared error.

    sensitivities: float64, (decisions,); an infinite one pins its node. pinned: bool, (decisions,).
    """
    count = len(network.vertices)
    terms = _cut_terms(network, sensitivities, multiplier, pinned)
    vertices = ~source_side(terms, count + 2 + 2 * len(network.wires), count, count + 1)[:count]
    low = np.zeros(network.decisions, np.bool_)
    for index, vertex in enumerate(network.vertices):
        if vertex.decision is not None:
            low[vertex.decision] = vertices[index]
    return Assignment(low=low, vertices=vertices, multiplier=multiplier)


def source_side(terms: Sequence[tuple[int, int, float, float]], count: int, source: int, sink: int) -> np.ndarray:
    """Which of `count` vertices lie on the source's side of a minimum cut: bool, (count,).

    terms: (tail, head, capacity, capacity back) in any unit; infinity for what must not be cut.
    """
    finite = [value for _, _, forward, back in terms for value in (forward, back) if math.isfinite(value)]
    unit = _SCALE / max(finite, default=1.0) if max(finite, default=0.0) > 0 else 1.0
    never = sum(round(value * unit) for value in finite) + 1
    arcs = [
        Arc(
            tail=tail,
            head=head,
            capacity=_as_whole_number(forward, unit, never),
            back=_as_whole_number(back, unit, never),
        )
        for tail, head, forward, back in terms
    ]
    return np.array(minimum_cut(count, arcs, source, sink).source_side, np.bool_)


def path_of_optima(network: CutNetwork, sensitivities: np.ndarray, pinned: np.ndarray) -> list[Assignment]:
    """The different optima from cheapest to most exact, as the multiplier grows by decades.

    It starts where the whole error is worth a ten-thousandth of the time that all nodes take, and ends where everything
    that has a sensitivity is full. Arguments are those of `cheapest_assignment`.
    """
    finite = sensitivities[np.isfinite(sensitivities) & ~pinned]
    whole = float(finite.sum()) if finite.size else 0.0
    time = sum(vertex.times.full for vertex in network.vertices) + sum(wire.cast for wire in network.wires)
    found: list[Assignment] = []
    if whole <= 0 or time <= 0:
        return [cheapest_assignment(network, sensitivities, 0.0, pinned)]
    for step in range(_STEPS + 1):
        multiplier = time / whole * 10.0 ** (-4.0 + _DECADES * step / _STEPS)
        one = cheapest_assignment(network, sensitivities, multiplier, pinned)
        if not found or not np.array_equal(found[-1].low, one.low):
            found.append(one)
    return found


def _cut_terms(
    network: CutNetwork, sensitivities: np.ndarray, multiplier: float, pinned: np.ndarray
) -> list[tuple[int, int, float, float]]:
    """(tail, head, capacity, capacity back) in seconds; infinity for what must not be cut."""
    count = len(network.vertices)
    full, low = count, count + 1  # the source and the sink
    terms: list[tuple[int, int, float, float]] = []
    for index, vertex in enumerate(network.vertices):
        terms.append((index, low, vertex.times.full, 0.0))
        error = 0.0
        if vertex.decision is not None:
            error = (
                math.inf if pinned[vertex.decision] else _weigh_sensitivity(sensitivities[vertex.decision], multiplier)
            )
        terms.append((full, index, vertex.times.low + error, 0.0))
        if vertex.decision is None:
            tied = len(vertex.sources) == 1
            terms.extend(
                (full if source == OUTSIDE else source, index, math.inf, math.inf if tied else 0.0)
                for source in vertex.sources
            )
    for number, wire in enumerate(network.wires):
        own = full if wire.producer == OUTSIDE else wire.producer
        readers = [full if reader == OUTSIDE else reader for reader in wire.consumers]
        if len(readers) == 1:
            terms.append((own, readers[0], wire.cast, wire.cast))
            continue
        some_low, some_full = count + 2 + 2 * number, count + 3 + 2 * number
        terms.append((own, some_low, wire.cast, 0.0))
        terms.extend((some_low, reader, math.inf, 0.0) for reader in readers)
        terms.append((some_full, own, wire.cast, 0.0))
        terms.extend((reader, some_full, math.inf, 0.0) for reader in readers)
    return terms


def _weigh_sensitivity(sensitivity: float, multiplier: float) -> float:
    return math.inf if math.isinf(sensitivity) else multiplier * float(sensitivity)


def _as_whole_number(value: float, unit: float, never: int) -> int:
    return never if math.isinf(value) else round(value * unit)
