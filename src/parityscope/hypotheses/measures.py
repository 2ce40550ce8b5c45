"""How far what was predicted is from what the candidate gave: errors in float64, which elements show them, what is none."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDING = 3e-7  # relative to the tensor's size: what FP32 sums may leave, and no less is asked to be explained
_PICKS = 20_000  # elements that a first look is about; chosen
_MISFIT = 100.0  # squared errors of the tensor's size that an element costs which is finite on one side only


class MadeOnce(Sequence[np.ndarray]):
    """Arrays that are made when they are asked for: of large tensors most never are."""

    def __init__(self, count: int, make: Callable[[int], np.ndarray]) -> None:
        self._made: dict[int, np.ndarray] = {}
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> np.ndarray:  # type: ignore[override]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        place %= self._count
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]


class StretchMeasures:
    """How far the candidate is from what the model says, and what counts as nothing."""

    def __init__(self, found: Sequence[np.ndarray], replayed: Sequence[np.ndarray]) -> None:
        self._found, self._replayed = found, replayed
        self.errors = MadeOnce(len(found), self._errors_of)

    @functools.cached_property
    def size(self) -> float:
        """Root mean square of what is finite of the first sample, as the model says."""
        known = self._replayed[0]
        finite = known[np.isfinite(known)]
        return max(float(np.sqrt(np.square(finite).mean())) if finite.size else 1.0, 1e-30)

    def _errors_of(self, sample: int) -> np.ndarray:
        found, known = self._found[sample], self._replayed[sample]
        same = known.shape == found.shape
        return squared_differences(found, known if same else np.full(found.shape, _finite_mean(found)), self.size)

    @functools.cached_property
    def shown_on(self) -> tuple[int, ...]:
        """The samples that show the error: what rounding left of the others judges nothing."""
        floor = (ROUNDING * self.size) ** 2
        sizes = (float(self.errors[sample].mean()) if one.size else 0.0 for sample, one in enumerate(self._found))
        return tuple(sample for sample, size in enumerate(sizes) if size > floor)

    @functools.cached_property
    def fitted_on(self) -> np.ndarray:
        """Of one sample that shows the error half of its elements are fitted, and the others judge."""
        first = self._found[0]
        alone = first.size > 1 and not any(self.shown_on)
        return np.random.default_rng(0).random(first.shape) < 0.5 if alone else np.ones(first.shape, bool)

    @functools.cached_property
    def picks(self) -> np.ndarray:
        """Half from all, half from those that differ."""
        count = self._found[0].size
        if count <= _PICKS:
            return np.arange(count)
        generator = np.random.default_rng(1)
        wrong = np.flatnonzero(self.errors[0].ravel() > (ROUNDING * self.size) ** 2)
        half = _PICKS // 2
        picks: list[np.ndarray] = [
            generator.integers(0, count, half),
            generator.choice(wrong, half) if wrong.size else wrong,
        ]
        return np.unique(np.concatenate(picks).astype(np.int64))


def as_float64(array: np.ndarray) -> np.ndarray:
    """Any array of numbers as float64."""
    return np.asarray(array, np.float64)


def are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether what two edits give is one result, but for FP32's rounding; NaN and Inf in the same places."""
    if one.shape != other.shape:
        return False
    with np.errstate(all="ignore"):
        mine, its = as_float64(one), as_float64(other)
        finite = np.isfinite(mine)
        if not np.array_equal(mine[~finite], its[~finite], equal_nan=True):
            return False
        apart = float(np.linalg.norm(mine[finite] - its[finite]))
        return apart <= ROUNDING * float(np.linalg.norm(mine[finite]))


def squared_differences(found: np.ndarray, predicted: np.ndarray, size: float) -> np.ndarray:
    """Squared differences; NaN and Inf in one place agree, and where one side alone is finite it costs as much as any error."""
    with np.errstate(all="ignore"):
        error: np.ndarray = np.square(found - predicted)
        bad = ~np.isfinite(error)
        if bad.any():
            same = (np.isnan(found) & np.isnan(predicted)) | (found == predicted)
            error[bad] = np.where(same, 0.0, _MISFIT * size**2)[bad]
    return error


def _finite_mean(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else 0.0
