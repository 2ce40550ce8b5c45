"""What was measured of many tensors so far, sample by sample.

float32 goes through the compiled pass (`_rows`); every other type through `measure_replay` and `range_of`, tensor by
tensor. Both keep the same definitions: those of `comparison.replayed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison import measure_replay
from parityscope.forecast._rows import Rows, is_fast, measured
from parityscope.forecast.ranges import is_real, joined, range_of
from parityscope.forecast.records import Predicted, Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.comparison import ReplayStatistics
    from parityscope.forecast._rows import Crew
    from parityscope.records import Site

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Tally"]

_REMEMBERED = 4096  # bytes, chosen: comparing them costs less than measuring anything


@dataclass(slots=True, kw_only=True)
class _Plain:
    """What `measure_replay` said of one tensor: r against c, and r, c and f(c_in)."""

    total: ReplayStatistics
    split: ReplayStatistics | None


class Tally:
    """What was measured of one format against the reference, and with `ranged` of the reference's ranges.

    `places` are the tensors that may come, in order. The attribute `problems` says why a tensor could not be measured.
    """

    def __init__(self, places: Mapping[str, Site], *, ranged: bool) -> None:
        self.problems: dict[str, str] = {}
        self._places = places
        self._ranged = ranged
        self._at = {name: at for at, name in enumerate(places)}
        self._rows = Rows.empty(len(self._at))
        self._elements = np.zeros(len(self._at), np.int64)
        self._seen = np.zeros(len(self._at), np.bool_)
        self._split = np.zeros(len(self._at), np.bool_)
        self._shapes: dict[int, tuple[int, ...]] = {}  # of the sample with the worst element
        self._samples: list[tuple[np.ndarray, np.ndarray]] = []  # rows, their errors
        self._plain: dict[str, _Plain] = {}
        self._plain_samples: dict[str, list[float]] = {}
        self._last: dict[str, tuple[object, ReplayStatistics, ReplayStatistics | None]] = {}
        self._plain_ranges: dict[str, Range] = {}

    def add(self, names: Sequence[str], reference: Arrays, candidate: Arrays, replayed: Arrays, crew: Crew) -> None:
        """Adds one sample of the tensors `names`; `replayed` lacks those whose introduced error is not wanted."""
        fast: list[str] = []
        tensors: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        for name in names:
            r, c, f = reference.get(name), candidate.get(name), replayed.get(name)
            if r is None or c is None:
                missing = "reference" if r is None else "simulation"
                self.problems.setdefault(name, f"the {missing} did not give it back")
            elif is_fast(r, c, f):
                fast.append(name)
                tensors.append((r, c, f))
            else:
                self._add_plainly(name, r, c, f)
        if fast:
            self._add_rows(np.array([self._at[name] for name in fast]), tensors, crew)

    def _add_rows(
        self, at: np.ndarray, tensors: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray | None]], crew: Crew
    ) -> None:
        new = measured(tensors, crew, ranged=self._ranged)
        taken = self._rows.add(at, new)
        for position in np.flatnonzero(taken).tolist():
            self._shapes[int(at[position])] = tensors[position][0].shape
        self._elements[at] += [r.size for r, _, _ in tensors]
        self._seen[at] = True
        self._split[at] |= [f is not None for _, _, f in tensors]
        self._samples.append((at, new.total()[0]))

    def add_measured(self, names: Sequence[str], rows: Rows, shapes: np.ndarray, split: np.ndarray) -> None:
        """Adds one sample of the tensors `names` that was measured in a session.

        `shapes` and `split` are int64, (n, 2 + d), and bool, (n,): elements (below 0: not measured), rank, dimensions; and
        of which the introduced error was measured.
        """
        at = np.array([self._at[name] for name in names], np.intp)
        taken = self._rows.add(at, rows)
        for position in np.flatnonzero(taken).tolist():
            elements, rank, *dimensions = shapes[position].tolist()
            self._shapes[int(at[position])] = tuple(dimensions[:rank]) if rank <= len(dimensions) else (elements,)
        for position in np.flatnonzero(shapes[:, 0] < 0).tolist():
            self.problems.setdefault(names[position], "the simulation gives another number of elements")
        self._elements[at] += np.maximum(shapes[:, 0], 0)
        self._seen[at] |= shapes[:, 0] >= 0
        self._split[at] |= split
        self._samples.append((at, rows.total()[0]))

    def _add_plainly(self, name: str, r: np.ndarray, c: np.ndarray, f: np.ndarray | None) -> None:
        try:
            total, split = self._plainly_measured(name, r, c, f)
        except ValueError as error:
            self.problems.setdefault(name, str(error))
            return
        self._plain_samples.setdefault(name, []).append(total.introduced)
        before = self._plain.get(name)
        if before is not None:
            total = before.total.merge(total)
            split = before.split.merge(split) if before.split and split else split or before.split
        self._plain[name] = _Plain(total=total, split=split)
        if self._ranged and is_real(r):
            found = range_of(self._places[name], r)
            self._plain_ranges[name] = joined(self._plain_ranges[name], found) if name in self._plain_ranges else found

    def _plainly_measured(
        self, name: str, r: np.ndarray, c: np.ndarray, f: np.ndarray | None
    ) -> tuple[ReplayStatistics, ReplayStatistics | None]:
        """What `measure_replay` says; small tensors (shapes, indices) that are what they were the last time cost nothing."""
        arrays = [r, c] if f is None else [r, c, f]
        small = all(0 < array.nbytes <= _REMEMBERED and array.dtype != object for array in arrays)
        key = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays) if small else ()
        if small and name in self._last and self._last[name][0] == key:
            return self._last[name][1:]
        # Against itself the reference inherits nothing: what is "introduced" is the whole error, largest one too.
        total = measure_replay(r, c, r, channel_axis=None)
        split = None if f is None else measure_replay(r, c, f, channel_axis=None)
        if small:
            self._last[name] = key, total, split
        return total, split

    def predicted(self, outputs: frozenset[str]) -> dict[str, Predicted]:
        """The error of every tensor that was measured, in order."""
        samples = self._samples_of()
        total, finite = self._rows.total()
        introduced, inherited = self._rows.introduced()
        found = {}
        for name, at in self._at.items():
            if name in self._plain:
                found[name] = self._plainly_predicted(name, outputs)
            elif self._seen[at]:
                worst = self._rows.worst(at)
                found[name] = Predicted(
                    site=self._places[name],
                    elements=int(self._elements[at]),
                    rel_l2=float(total[at]),
                    rel_l2_finite=float(finite[at]),
                    max_abs=self._rows.largest_error(at),
                    worst_index=None if worst is None else _index(worst, self._shapes[at]),
                    nonfinite=int(self._rows.counts[at, 0]),
                    is_output=name in outputs,
                    introduced=float(introduced[at]) if self._split[at] else None,
                    inherited=float(inherited[at]) if self._split[at] else None,
                    per_sample=tuple(samples[at]),
                )
        return found

    def ranges(self) -> dict[str, Range]:
        """The reference's range of every tensor of floats that was measured, in order."""
        if not self._ranged:
            return {}
        found = {}
        for name, at in self._at.items():
            if self._seen[at]:
                largest, smallest = self._rows.range_of(at)
                zeros, nonfinite = (int(count) for count in self._rows.counts[at, 6:8])
                found[name] = Range(
                    site=self._places[name],
                    elements=int(self._elements[at]),
                    largest=largest,
                    smallest=smallest,
                    zeros=zeros,
                    nonfinite=nonfinite,
                )
            elif name in self._plain_ranges:
                found[name] = self._plain_ranges[name]
        return found

    def _samples_of(self) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in self._at]
        for rows, errors in self._samples:
            for at, error in zip(rows.tolist(), errors.tolist(), strict=True):
                found[at].append(error)
        return found

    def _plainly_predicted(self, name: str, outputs: frozenset[str]) -> Predicted:
        total, split = self._plain[name].total, self._plain[name].split
        return Predicted(
            site=self._places[name],
            elements=total.count,
            rel_l2=total.introduced,
            rel_l2_finite=total.introduced_finite,
            max_abs=total.introduced_max,
            worst_index=total.worst_index,
            nonfinite=total.introduced_nonfinite,
            is_output=name in outputs,
            exact=total.exact,
            introduced=split.introduced if split else None,
            inherited=split.inherited if split else None,
            per_sample=tuple(self._plain_samples[name]),
        )


def _index(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
