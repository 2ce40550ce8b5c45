"""Prices of many assignments at once, as `network.price_assignment` gives them one at a time.

What is low follows from the decisions in topological order; after that every sum is one over an array of
(assignments, vertices) or (assignments, wires), so that thousands of assignments take as long as a few by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass
from parityscope.repairs.search.network import OUTSIDE

if TYPE_CHECKING:
    from parityscope.repairs.search.network import CutNetwork

_CELLS = 1 << 24  # chosen: assignments times vertices of one go, 16 MB of bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricer:
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
        step = max(1, _CELLS // (self.vertices + 1))
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


def pricer_of(network: CutNetwork) -> Pricer:
    """The arrays of a network."""
    count = len(network.vertices)

    def place(vertex: int) -> int:
        return count if vertex == OUTSIDE else vertex

    deciding = [(index, one.decision) for index, one in enumerate(network.vertices) if one.decision is not None]
    lengths = [len(wire.consumers) for wire in network.wires]
    return Pricer(
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
