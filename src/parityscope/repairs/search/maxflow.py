"""Exact maximum flow and minimum cut of a directed graph with whole-number capacities.

Dinic's algorithm: breadth-first levels, then depth-first augmentation along edges that go one level down, with a
pointer per vertex that never goes back; at most (vertices)² (edges) steps, far fewer on the sparse graphs of networks.
Capacities are Python integers of any size, so that nothing overflows and the cut is exact; the libraries that were
looked at take 32-bit capacities (scipy) or hold a dictionary an edge (networkx).

Source: E. A. Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, Soviet
Math. Doklady 11, 1970; the cut is that of L. R. Ford and D. R. Fulkerson, 1956.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Arc", "MinimumCut", "minimum_cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """A capacity from `tail` to `head`, and one back; neither is negative."""

    tail: int
    head: int
    capacity: int
    back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumCut:
    """The value of a minimum cut, and for each vertex whether it lies on the source's side.

    Of several minimum cuts this is the one with the fewest vertices on the source's side.
    """

    value: int
    source_side: tuple[bool, ...]


def minimum_cut(count: int, arcs: Iterable[Arc], source: int, sink: int) -> MinimumCut:
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
            return MinimumCut(value=value, source_side=tuple(each >= 0 for each in level))
        value += _blocking_flow(net, level, source, sink)


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
