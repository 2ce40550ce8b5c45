"""Accumulators of the compiled pass for many tensors at once: one row a tensor, added up as whole arrays.

Hundreds of small records a sample would cost more than a small network.
"""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    Threesome = tuple[np.ndarray, np.ndarray, np.ndarray | None]

__all__ = ["Crew", "Rows", "is_fast", "measured"]

_WORTH_A_THREAD = 1 << 15  # elements, chosen: less than 0.02 ms of work a tensor is not worth cutting
# Of `_pass`, which is compiled when it is imported: numbers in a row of sums, counts and ends, and "no such element".
_SUMS, _COUNTS, _ENDS, _NOWHERE = 5, 8, 5, 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crew:
    """How many threads measure, the caller's included; `pool` has the others (None: there are none)."""

    threads: int
    pool: Executor | None

    @classmethod
    @contextlib.contextmanager
    def of(cls, threads: int) -> Iterator[Crew]:
        """A crew of `threads`, for a block."""
        if threads < 2:
            yield cls(threads=1, pool=None)
            return
        with ThreadPoolExecutor(threads - 1) as pool:
            yield cls(threads=threads, pool=pool)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """What `_pass.measure_stretch` adds to: `sums` (n, 5), `counts` (n, 8) and `ends` (n, 5), explained there."""

    sums: np.ndarray
    counts: np.ndarray
    ends: np.ndarray

    @classmethod
    def empty(cls, count: int) -> Rows:
        """`count` rows of tensors without elements."""
        nothing = np.array([0, _NOWHERE, _NOWHERE, 0, _NOWHERE], np.int64)
        return cls(
            sums=np.zeros((count, _SUMS)),
            counts=np.zeros((count, _COUNTS), np.int64),
            ends=np.tile(nothing, (count, 1)),
        )

    def add(self, at: np.ndarray, other: Rows) -> np.ndarray:
        """Adds `other` to the rows `at`; gives bool, (len(at),): which took their worst element from there."""
        self.sums[at] += other.sums
        self.counts[at] += other.counts
        mine, its = self.ends[at], other.ends
        # An element that disagrees is worse than any that differs; of equals the one seen first is kept.
        agreed = mine[:, 2] == _NOWHERE
        disagrees = agreed & (its[:, 2] != _NOWHERE)
        larger = agreed & (its[:, 1] != _NOWHERE) & ((its[:, 0] > mine[:, 0]) | (mine[:, 1] == _NOWHERE))
        mine[:, 0] = np.maximum(mine[:, 0], its[:, 0])
        mine[:, 1] = np.where(larger, its[:, 1], mine[:, 1])
        mine[:, 2] = np.where(disagrees, its[:, 2], mine[:, 2])
        mine[:, 3] = np.maximum(mine[:, 3], its[:, 3])
        mine[:, 4] = np.minimum(mine[:, 4], its[:, 4])
        self.ends[at] = mine
        taken: np.ndarray = disagrees | larger
        return taken

    def total(self) -> tuple[np.ndarray, np.ndarray]:
        """Relative L2 errors of c against r, and those over finite elements alone; each float64, (n,)."""
        finite = _relative(self.sums[:, 0], self.sums[:, 1])
        return np.where(self.counts[:, 0] + self.counts[:, 1] > 0, np.inf, finite), finite

    def introduced(self) -> tuple[np.ndarray, np.ndarray]:
        """Introduced and inherited errors relative to r; each float64, (n,)."""
        both = _relative(self.sums[:, 2], self.sums[:, 4]), _relative(self.sums[:, 3], self.sums[:, 4])
        broken = self.counts[:, 2] + self.counts[:, 3] > 0, self.counts[:, 4] + self.counts[:, 5] > 0
        return np.where(broken[0], np.inf, both[0]), np.where(broken[1], np.inf, both[1])

    def largest_error(self, at: int) -> float:
        """The largest |c - r| of a row; infinite where an element disagrees."""
        if self.ends[at, 2] != _NOWHERE:
            return math.inf
        return float(self.ends[at, 0:1].view(np.float64)[0])

    def worst(self, at: int) -> int | None:
        """The flat index of a row's worst element; None where none differs."""
        disagreeing, largest = int(self.ends[at, 2]), int(self.ends[at, 1])
        found = largest if disagreeing == _NOWHERE else disagreeing
        return None if found == _NOWHERE else found

    def range_of(self, at: int) -> tuple[float, float]:
        """The largest magnitude of r and its smallest but zero (0.0: there is none)."""
        smallest = 0 if self.ends[at, 4] == _NOWHERE else self.ends[at, 4]
        ends = np.array([self.ends[at, 3], smallest], np.uint32).view(np.float32)
        return float(ends[0]), float(ends[1])


def is_fast(r: np.ndarray, c: np.ndarray, f: np.ndarray | None) -> bool:
    """Whether the compiled pass takes these: float32, side by side in memory, of one shape."""
    return all(
        array is None or (array.dtype == np.float32 and array.shape == r.shape and array.flags.c_contiguous)
        for array in (r, c, f)
    )


def measured(tensors: Sequence[Threesome], crew: Crew, *, ranged: bool) -> Rows:
    """One row for each of `tensors` (r, c, f), all of them `is_fast`; large ones are cut, a part for each of `crew`."""
    flat = [(r.reshape(-1), c.reshape(-1), None if f is None else f.reshape(-1)) for r, c, f in tensors]
    if crew.pool is None or max(r.size for r, _, _ in flat) < _WORTH_A_THREAD:
        return _part(flat, 0, 1, ranged=ranged)
    parts = [crew.pool.submit(_part, flat, part, crew.threads, ranged=ranged) for part in range(1, crew.threads)]
    rows = _part(flat, 0, crew.threads, ranged=ranged)
    for part in parts:
        rows.add(np.arange(len(flat)), part.result())
    return rows


def _part(tensors: Sequence[Threesome], part: int, parts: int, *, ranged: bool) -> Rows:
    """The rows of one of `parts` stretches of every tensor; small tensors are not cut and belong to the first."""
    from parityscope.forecast._pass import measure_stretch

    rows = Rows.empty(len(tensors))
    for at, (r, c, f) in enumerate(tensors):
        cut = parts if r.size >= _WORTH_A_THREAD else 1
        start, stop = r.size * min(part, cut) // cut, r.size * min(part + 1, cut) // cut
        if start < stop:
            other = r if f is None else f
            accumulators = rows.sums[at], rows.counts[at], rows.ends[at]
            measure_stretch(
                r[start:stop], c[start:stop], other[start:stop], int(f is not None), int(ranged), start, *accumulators
            )
    return rows


def _relative(square: np.ndarray, reference2: np.ndarray) -> np.ndarray:
    """sqrt(square / reference2); 0 for no error, and infinite for any beside a reference of zeros."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.sqrt(square / reference2)
    return np.where(square == 0, 0.0, found)
