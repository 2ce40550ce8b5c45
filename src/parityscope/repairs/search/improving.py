"""Beyond the cuts: local improvement of an assignment under a bound on its predicted error, without a single run.

Cuts give the optima of time plus a price times error: the corners of the lower hull of error against time. The cheapest
assignment under a bound may lie between two corners, where no price leads. From an assignment that keeps the bound the
best move is made again and again until none makes it cheaper: nodes that follow each other in topological order (1, 2, 4
... of them), or a connected region of kept or of low nodes, change their side. So a kept region is dropped where the
error has room for it, and a small low one between kept ones is filled in where that saves more in Casts than it costs.

Everything is by the model: the sum of squared sensitivities for the error, a `_Pricer` for the time. What comes out is a
proposal, to be evaluated. Beside what was found it starts from the shortest prefix and the shortest suffix that keep the
bound: one border through the network takes the fewest Casts.

Prices of many assignments at once, as `network.price_assignment` gives them one at a time.

What is low follows from the decisions in topological order; after that every sum is one over an array of
(assignments, vertices) or (assignments, wires), so that thousands of assignments take as long as a few by themselves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.network import F32, OUTSIDE, resolve_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from parityscope.repairs.search.network import CutNetwork

_PRICED = 1 << 24  # chosen: assignments times vertices of one go, 16 MB of bool
_WORK = 3e8  # assignments times nodes that one proposal may look at. Chosen: eight seconds on a chain of 3000 nodes
_CELLS = 1 << 23  # of them in one product: 64 MB of floats. Chosen
# What a Cast costs beyond its time, as a share of the whole model's time in FP32. Chosen: of two assignments that are
# otherwise equal within a thousandth, as roofs are never exact, the one with fewer borders is taken.
_EACH_CAST = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pricer:
    """A network as arrays. The world outside is one more vertex behind the others, and always full.

    `deciding` and `decisions`: int, the vertices that decide and their places; `full` and `low`: seconds, (vertices,);
    `producers` and `casts`: (wires,); `readers`: the readers of all wires one after another, which begin at `starts`.
    """

    vertices: int
    deciding: np.ndarray
    decisions: np.ndarray
    following: tuple[tuple[int, tuple[int, ...]], ...]
    full: np.ndarray
    low: np.ndarray
    producers: np.ndarray
    casts: np.ndarray
    readers: np.ndarray
    starts: np.ndarray

    def seconds(self, low: np.ndarray, *, each_cast: float = 0.0) -> np.ndarray:
        """Modelled seconds: float64, (assignments,). `each_cast` is added for every Cast.

        low: bool, (assignments, decisions).
        """
        step = max(1, _PRICED // (self.vertices + 1))
        parts = [self._seconds(low[at : at + step], each_cast) for at in range(0, len(low), step)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _seconds(self, low: np.ndarray, each_cast: float) -> np.ndarray:
        is_low = np.zeros((len(low), self.vertices + 1), np.bool_)
        is_low[:, self.deciding] = low[:, self.decisions]
        for vertex, sources in self.following:
            is_low[:, vertex] = is_low[:, sources].all(axis=1)
        total: np.ndarray = np.where(is_low[:, :-1], self.low, self.full).sum(axis=1)
        if not self.starts.size:
            return total
        read = is_low[:, self.readers]
        some, every = (one.reduceat(read, self.starts, axis=1) for one in (np.logical_or, np.logical_and))
        cast = np.where(is_low[:, self.producers], ~every, some)
        return total + cast @ (self.casts + each_cast)


def pricer_of(network: CutNetwork) -> _Pricer:
    """The arrays of a network."""
    count = len(network.vertices)

    def place(vertex: int) -> int:
        return count if vertex == OUTSIDE else vertex

    deciding = [(index, one.decision) for index, one in enumerate(network.vertices) if one.decision is not None]
    lengths = [len(wire.consumers) for wire in network.wires]
    return _Pricer(
        vertices=count,
        deciding=np.array([index for index, _ in deciding], np.intp),
        decisions=np.array([decision for _, decision in deciding], np.intp),
        following=tuple(
            (index, tuple(place(source) for source in one.sources))
            for index, one in enumerate(network.vertices)
            if one.decision is None
        ),
        full=np.array([one.times.full for one in network.vertices], np.float64),
        low=np.array([one.times.low for one in network.vertices], np.float64),
        producers=np.array([place(wire.producer) for wire in network.wires], np.intp),
        casts=np.array([wire.cast for wire in network.wires], np.float64),
        readers=np.array([place(reader) for wire in network.wires for reader in wire.consumers], np.intp),
        starts=np.cumsum([0, *lengths])[:-1].astype(np.intp) if lengths else np.zeros(0, np.intp),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Improver:
    """A network with the squared sensitivities of its decisions: float64, (decisions,); `pinned`: bool, always full."""

    network: CutNetwork
    pricer: _Pricer
    squared: np.ndarray
    pinned: np.ndarray
    each_cast: float

    def cheapest(self, bound: float, starts: Iterable[np.ndarray]) -> np.ndarray | None:
        """The cheapest assignment found whose predicted squared error is at most `bound`: bool, (decisions,).

        `starts` are assignments to begin with; those beyond the bound are left out. None if nothing keeps it.
        """
        begun = [*starts, *runs_of(self.squared, self.pinned, bound)]
        unique = {low.tobytes(): low for low in begun if self.predicted(low) <= bound}
        found = [self._descend_from(low, bound, _WORK / len(unique)) for low in unique.values()]
        return min(found, key=self.cost, default=None)

    def predicted(self, low: np.ndarray) -> float:
        """The squared error that the additive model predicts; infinite where a pinned node is low."""
        return math.inf if bool((low & self.pinned).any()) else float(self.squared[low].sum())

    def cost(self, low: np.ndarray) -> float:
        """Modelled seconds, Casts weighed a little more."""
        return float(self._costs(low[None])[0])

    def _errors(self, low: np.ndarray) -> np.ndarray:
        """The predicted squared errors of assignments without pinned nodes: float64, (assignments,)."""
        rows = max(1, _CELLS // max(1, low.shape[1]))
        parts = [low[at : at + rows] @ self.squared for at in range(0, len(low), rows)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _costs(self, low: np.ndarray) -> np.ndarray:
        return self.pricer.seconds(low, each_cast=self.each_cast)

    def _descend_from(self, low: np.ndarray, bound: float, work: float) -> np.ndarray:
        """The end of the steepest descent from `low`."""
        current, cost, done = low, self.cost(low), 0.0
        while done < work:
            moved = np.array(list(self._neighbours_of(current)), np.bool_).reshape(-1, low.size)
            moved = moved[self._errors(moved) <= bound]
            done += moved.size + 1
            costs = self._costs(moved)
            if not costs.size or costs.min() >= cost * (1 - 1e-9):
                break
            best = int(costs.argmin())
            current, cost = moved[best], float(costs[best])
        return current

    def _neighbours_of(self, low: np.ndarray) -> Iterator[np.ndarray]:
        """The neighbours of an assignment, pinned nodes full."""
        count, length = low.size, 1
        while length <= count:
            # Long segments are not moved by single nodes: a quarter of their length.
            for begin in range(0, count - length + 1, max(1, length // 4)):
                for value in (True, False):
                    yield from self._with_places_changed(low, slice(begin, begin + length), value=value)
            length *= 2
        for region in self._regions(low):
            yield from self._with_places_changed(low, region, value=not low[region[0]])

    def _with_places_changed(self, low: np.ndarray, places: slice | list[int], *, value: bool) -> Iterator[np.ndarray]:
        moved = low.copy()
        moved[places] = value
        moved &= ~self.pinned
        if not np.array_equal(moved, low):
            yield moved

    def _regions(self, low: np.ndarray) -> list[list[int]]:
        """The connected sets of more than one deciding node with the same side, as their places."""
        vertices, root = self.network.vertices, list(range(len(self.network.vertices)))

        def top(vertex: int) -> int:
            while root[vertex] != vertex:
                root[vertex] = root[root[vertex]]
                vertex = root[vertex]
            return vertex

        side = resolve_labels(self.network, low) != F32
        for wire in self.network.wires:
            for reader in wire.consumers:
                if OUTSIDE not in (wire.producer, reader) and side[wire.producer] == side[reader]:
                    root[top(reader)] = top(wire.producer)
        held: dict[int, list[int]] = {}
        for index, vertex in enumerate(vertices):
            if vertex.decision is not None:
                held.setdefault(top(index), []).append(vertex.decision)
        return [places for places in held.values() if len(places) > 1]


def improver_of(network: CutNetwork, squared: np.ndarray, pinned: np.ndarray) -> Improver:
    """What improves assignments of a network.

    squared: float64, (decisions,); an infinite sensitivity pins its node. pinned: bool, (decisions,).
    """
    whole = sum(vertex.times.full for vertex in network.vertices)
    return Improver(
        network=network,
        pricer=pricer_of(network),
        squared=np.where(np.isfinite(squared), squared, 0.0),
        pinned=pinned | ~np.isfinite(squared),
        each_cast=_EACH_CAST * whole,
    )


def runs_of(squared: np.ndarray, pinned: np.ndarray, bound: float) -> Iterator[np.ndarray]:
    """The shortest prefix and the shortest suffix in full precision, beside the pinned nodes, that keep the bound.

    squared: float64, (decisions,), whose sum over low nodes is bounded. pinned: bool, (decisions,). Gives what is low, bool
    (decisions,).
    """
    count = squared.size
    held = np.where(pinned, 0.0, squared)
    after = np.concatenate([np.cumsum(held[::-1])[::-1], [0.0]])
    before = np.concatenate([[0.0], np.cumsum(held)])
    places = np.arange(count)
    yield (places >= int(np.argmax(after <= bound))) & ~pinned
    yield (places < count - int(np.argmax(before[::-1] <= bound))) & ~pinned
