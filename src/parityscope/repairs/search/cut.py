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

Exact maximum flow and minimum cut of a directed graph with whole-number capacities.

Dinic's algorithm: breadth-first levels, then depth-first augmentation along edges that go one level down, with a
pointer per vertex that never goes back; at most (vertices)² (edges) steps, far fewer on the sparse graphs of networks.
Capacities are Python integers of any size, so that nothing overflows and the cut is exact; the libraries that were
looked at take 32-bit capacities (scipy) or hold a dictionary an edge (networkx).

Source: E. A. Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, Soviet
Math. Doklady 11, 1970; the cut is that of L. R. Ford and D. R. Fulkerson, 1956.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass, field
from parityscope.repairs.search.network import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parityscope.repairs.search.network import CutNetwork

_SCALE = 1 << 48
_STEPS = 40  # multipliers on a path: 12 decades in steps of two
_DECADES = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """A capacity from `tail` to `head`, and one back; neither is negative."""

    tail: int
    head: int
    capacity: int
    back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _MinimumCut:
    """The value of a minimum cut, and for each vertex whether it lies on the source's side.

    Of several minimum cuts this is the one with the fewest vertices on the source's side.
    """

    value: int
    source_side: tuple[bool, ...]


@dataclass(slots=True, kw_only=True)
class _Residual:
    """Edges in pairs: edge i and its reverse i ^ 1. `leaving` has the edges that leave each vertex."""

    leaving: list[list[int]]
    heads: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def add(self, arc: Arc) -> None:
        for tail, head, capacity in ((arc.tail, arc.head, arc.capacity), (arc.head, arc.tail, arc.back)):
            self.leaving[tail].append(len(self.heads))
            self.heads.append(head)
            self.left.append(capacity)


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


def minimum_cut(count: int, arcs: Iterable[Arc], source: int, sink: int) -> _MinimumCut:
    """The minimum cut between two of `count` vertices.

    Raises:
        ValueError: a capacity is negative, or source and sink are one.
    """
    if source == sink:
        raise ValueError("source and sink are the same vertex")
    net = _Residual(leaving=[[] for _ in range(count)])
    for arc in arcs:
        if arc.capacity < 0 or arc.back < 0:
            raise ValueError(f"the capacity of {arc.tail} -> {arc.head} is negative")
        if arc.tail != arc.head and (arc.capacity or arc.back):
            net.add(arc)
    value = 0
    while True:
        level = _distance_levels(net, source)
        if level[sink] < 0:
            return _MinimumCut(value=value, source_side=tuple(each >= 0 for each in level))
        value += _blocking_flow(net, level, source, sink)


def _distance_levels(net: _Residual, source: int) -> list[int]:
    """The distance of each vertex from the source along edges with capacity left; -1 where there is no path."""
    level = [-1] * len(net.leaving)
    level[source] = 0
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for edge in net.leaving[vertex]:
            head = net.heads[edge]
            if net.left[edge] and level[head] < 0:
                level[head] = level[vertex] + 1
                queue.append(head)
    return level


def _blocking_flow(net: _Residual, level: list[int], source: int, sink: int) -> int:
    """Fills paths that go one level down at each edge until none is left; gives what was added."""
    pointer = [0] * len(net.leaving)
    path: list[int] = []
    total = 0
    vertex = source
    while True:
        if vertex == sink:
            least = min(net.left[edge] for edge in path)
            total += least
            for edge in path:
                net.left[edge] -= least
                net.left[edge ^ 1] += least
            # Go on from the tail of the first edge that is full now.
            first = next(place for place, edge in enumerate(path) if not net.left[edge])
            vertex = net.heads[path[first] ^ 1]
            del path[first:]
            continue
        edges = net.leaving[vertex]
        place = pointer[vertex]
        while place < len(edges):
            edge = edges[place]
            if net.left[edge] and level[net.heads[edge]] == level[vertex] + 1:
                break
            place += 1
        pointer[vertex] = place
        if place < len(edges):
            path.append(edges[place])
            vertex = net.heads[edges[place]]
        elif path:
            vertex = net.heads[path.pop() ^ 1]
            pointer[vertex] += 1
        else:
            return total
