"""What was measured of many tensors so far, sample by sample: a format's world against the plain one (`comparison.replayed`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parityscope.comparison import measure_replay
from parityscope.expectation.forecasts import Predicted
from parityscope.expectation.ranges import is_real, join_ranges, range_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.comparison import ReplayStatistics
    from parityscope.expectation.forecasts import MagnitudeRange
    from parityscope.records import Site

    Arrays = Mapping[str, np.ndarray]

__all__ = ["Tally"]

_REMEMBERED = 4096  # bytes, chosen: comparing them costs less than measuring anything

_Measured = tuple["ReplayStatistics", "ReplayStatistics | None"]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was measured of one format, with `ranged` of the reference's ranges too.

    `places` are the tensors that may come, in order; `problems` says why a tensor could not be measured. Of each tensor is kept r
    against c and, where it is wanted, the split of r, c and f(c_in).
    """

    places: Mapping[str, Site]
    ranged: bool
    threads: int = 1
    problems: dict[str, str] = field(default_factory=dict)
    _found: dict[str, _Measured] = field(default_factory=dict)
    _samples: dict[str, list[float]] = field(default_factory=dict)
    _last: dict[str, tuple[object, _Measured]] = field(default_factory=dict)
    _ranges: dict[str, MagnitudeRange] = field(default_factory=dict)

    def add(self, names: Sequence[str], reference: Arrays, candidate: Arrays, replayed: Arrays) -> None:
        """Adds one sample of the tensors `names`; `replayed` lacks those whose introduced error is not wanted."""
        for name in names:
            r, c, f = reference.get(name), candidate.get(name), replayed.get(name)
            if r is None or c is None:
                missing = "reference" if r is None else "simulation"
                self.problems.setdefault(name, f"the {missing} did not give it back")
                continue
            try:
                total, split = self._measure_tensor(name, r, c, f)
            except ValueError as error:
                self.problems.setdefault(name, str(error))
                continue
            self._samples.setdefault(name, []).append(total.total)
            if name in self._found:
                before = self._found[name]
                total = before[0].merge(total)
                split = before[1].merge(split) if before[1] and split else split or before[1]
            self._found[name] = total, split
            if self.ranged and is_real(r):
                held = range_of(self.places[name], r)
                self._ranges[name] = join_ranges(self._ranges[name], held) if name in self._ranges else held

    def _measure_tensor(self, name: str, r: np.ndarray, c: np.ndarray, f: np.ndarray | None) -> _Measured:
        """What one sample says; small tensors (shapes, indices) that are what they were the last time cost nothing."""
        arrays = [r, c] if f is None else [r, c, f]
        small = all(0 < array.nbytes <= _REMEMBERED and array.dtype != object for array in arrays)
        key = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays) if small else ()
        if small and name in self._last and self._last[name][0] == key:
            return self._last[name][1]
        split = None if f is None else measure_replay(r, c, f, channel_axis=None, threads=self.threads)
        # Where f alone is not finite, an element counts for r and c all the same.
        whole = split is not None and not split.left_out
        total = split if split and whole else measure_replay(r, c, r, channel_axis=None, threads=self.threads)
        if small:
            self._last[name] = key, (total, split)
        return total, split

    def predicted(self, outputs: frozenset[str]) -> dict[str, Predicted]:
        """The error of every tensor that was measured, in order."""
        return {name: self._predict_tensor(name, outputs) for name in self.places if name in self._found}

    def ranges(self) -> dict[str, MagnitudeRange]:
        """The reference's range of every tensor of floats that was measured, in order."""
        return {name: self._ranges[name] for name in self.places if name in self._ranges}

    def _predict_tensor(self, name: str, outputs: frozenset[str]) -> Predicted:
        total, split = self._found[name]
        return Predicted(
            site=self.places[name],
            elements=total.count,
            rel_l2=total.total,
            rel_l2_finite=total.total_finite,
            max_abs=total.total_max,
            worst_index=total.total_index,
            nonfinite=total.introduced_nonfinite,
            is_output=name in outputs,
            exact=total.exact,
            introduced=split.introduced if split else None,
            inherited=split.inherited if split else None,
            per_sample=tuple(self._samples[name]),
        )
