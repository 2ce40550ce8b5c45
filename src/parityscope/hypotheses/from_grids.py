"""Constants and inputs on a grid, cut off, or without their small elements, by a rule or by numbers fitted to the candidate.

How large a change of an input the error speaks of is known before any is tried: independent small changes of known size say how
much of one arrives. So a grid is run only where it moves the array by about as much as that (`_LIKELY`).

A scale that no rule gives is sought: its error tells its size, within the basin of the right one, which is as wide as the phase
of the farthest level needs to turn (one part in twice the levels). Where each index of an axis of the array reaches one index of
the result alone, all of them are sought at once, each by its own elements.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.fitting import FITTED_BITS
from parityscope.hypotheses.from_inputs import edit_of_input, input_values, label_of_input
from parityscope.hypotheses.grids import Sharing, grids_of
from parityscope.hypotheses.measures import as_float64, squared_differences
from parityscope.hypotheses.numbered import cut_input, cutting
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from parityscope.hypotheses.edits import StretchEdit
    from parityscope.hypotheses.grids import Grid
    from parityscope.hypotheses.stretch import ComputedStretch

    Change = Callable[[np.ndarray], np.ndarray]

_BITS = (8, 4, 2, 3, 5, 6, 7)
_USUAL_BITS = (8, 4)
_FEW = 8  # elements of a group: fewer lie on a grid by accident
_MOST = 1 << 22  # elements of an array that is put on grids; chosen
_LIKELY = 3.0  # times as large or small as the error says, in squares: errors are not independent; chosen
# Elements of a large array that a grid is tried on first, and how much further off it may be there: the largest element of fewer
# is smaller (of 64 normal ones 2.4 deviations, of 4,096 3.6). Chosen.
_PART, _ROUGHLY = 1 << 16, 3.0
_PROBE = 2.0**-7  # of an array's size: large enough for FP32, small enough for a derivative
_SEEN = 1e-10  # of the squares: less is rounding
# Of the largest element over the levels: calibration cuts off no more and sees no larger ones by more;
# a grid with a zero point is half as wide at least. Chosen.
_CUT, _WIDE = (0.4, 1.3), (0.45, 1.3)
_APART = (
    0.01  # relative: of few levels scales are tried closer than their phases ask, as what is cut off moves too; chosen
)
_WORK = 3e8  # elements that a search of scales may read and write, about two seconds; chosen
_ZOOMS, _ZOOM, _LOOKED_AT = (
    6,
    4,
    9,
)  # times nearer to the best scale, by how much, scales each: then one element in 10,000 errs
_PARTS = 24  # quantiles of sizes at which an array is cut off
_WORTH = 0.2  # of the error that the best scale must explain before it is refined; chosen


def grid_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Each input on the grids of rules; of a site whose error is not known, constants on the usual grids."""
    known = stretch.same_shape and bool(stretch.errors[0].any())
    for index, array in _arrays_of(stretch, node):
        if not known and node.input[index] not in stretch.context.constants:
            continue
        label = label_of_input(stretch, node, index)
        if not known:
            usual = list(grids_of(array.shape, _USUAL_BITS, lambda rule: not rule.bits))
            yield from (_edit_of_grid(place, label, index, grid, len(usual)) for grid in usual)
            continue
        probe = _Probe(stretch, place, index, array)
        size = probe.size_of_change()
        if size is None:
            continue
        every = list(grids_of(array.shape, _BITS))
        for grid in every:
            if probe.is_likely(grid, size):
                yield _edit_of_grid(place, label, index, grid, len(every))


def _edit_of_grid(place: int, label: str, index: int, grid: Grid, count: int) -> StretchEdit:
    return edit_of_input(place, f"{label} {grid.words}", 5 + math.log2(count) + grid.rule.bits, index, grid.apply)


def fitted_grid_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Each input on a grid of a scale that is fitted, cut off at a size that is, or without what is smaller."""
    if not stretch.same_shape or not stretch.errors[0].any():
        return
    for index, array in _arrays_of(stretch, node):
        probe = _Probe(stretch, place, index, array)
        size = probe.size_of_change()
        if size is None:
            continue
        label = label_of_input(stretch, node, index)
        yield from _cut_edits(probe, label)
        for sharing in (Sharing(), *probe.axes_apart()):
            yield from _scale_edits(probe, size, label, sharing)


def _part_of(array: np.ndarray, whole: int | None) -> np.ndarray:
    """About `_PART` elements, spread along the longest axis but one that stays whole; all where that has too few indices."""
    axis = max(
        (other for other in range(array.ndim) if other != whole), key=lambda other: array.shape[other], default=None
    )
    if axis is None or array.size <= _PART:
        return array
    step = min(-(-array.size // _PART), array.shape[axis])
    return array[(slice(None),) * axis + (slice(None, None, step),)]


def _squares_moved(grid: Grid | _Levels, array: np.ndarray) -> float:
    return float(np.square(as_float64(grid.apply(array)) - as_float64(array)).sum())


def _arrays_of(stretch: ComputedStretch, node: onnx.NodeProto) -> Iterator[tuple[int, np.ndarray]]:
    for index, array in input_values(stretch, node).items():
        if array.dtype.kind == "f" and 2 * _FEW <= array.size <= _MOST and np.isfinite(array).all() and array.any():
            yield index, array


@dataclass(slots=True, eq=False)
class _Probe:
    """What small changes of one input of a step do to the result of its stretch on the first sample."""

    stretch: ComputedStretch
    place: int
    index: int
    array: np.ndarray

    def result_of(self, change: Change) -> np.ndarray | None:
        """The result, float64; None where it cannot be run, or is of another shape."""
        edit = edit_of_input(self.place, "", 0, self.index, change)
        try:
            with np.errstate(all="ignore"):
                found = self.stretch.stored(self.stretch.run(0, edit))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - what cannot be run explains nothing
            return None
        return found if found.shape == self.stretch.found[0].shape else None

    def errors_of(self, change: Change) -> np.ndarray | None:
        """What a change leaves: squares of each element that is fitted on, 0 elsewhere."""
        made = self.result_of(change)
        if made is None:
            return None
        left = squared_differences(self.stretch.found[0], made, self.stretch.size)
        return np.where(self.stretch.fitted_on, left, 0.0)

    def left_by(self, change: Change) -> float:
        """The squared error that a change leaves on `picks` that are fitted on; infinite where it cannot be run."""
        made, picks = self.result_of(change), self.stretch.picks
        if made is None:
            return math.inf
        left = squared_differences(self.stretch.found[0].ravel()[picks], made.ravel()[picks], self.stretch.size)
        return float(left[self.stretch.fitted_on.ravel()[picks]].sum())

    def is_likely(self, grid: Grid, size: float) -> bool:
        """Whether a grid moves the array by about the sum of squares `size`; of a large one a part is asked first."""
        part = _part_of(self.array, grid.sharing.axis)
        rough = _squares_moved(grid, part) * self.array.size / part.size if part.size < self.array.size else size
        if not size / (_LIKELY * _ROUGHLY) <= rough <= size * _LIKELY * _ROUGHLY:
            return False
        return size / _LIKELY <= _squares_moved(grid, self.array) <= size * _LIKELY

    def size_of_change(self) -> float | None:
        """The sum of squares of a change of the input that would give the error; None where its changes do not arrive."""
        array = as_float64(self.array)
        noise = np.random.default_rng(5).choice([-1.0, 1.0], array.shape) * _PROBE * math.sqrt(np.square(array).mean())
        made = self.result_of(lambda _: (array + noise).astype(self.array.dtype))
        if made is None:
            return None
        chosen = np.isfinite(made) & np.isfinite(self.stretch.replayed[0])
        arrived = float(np.square(made - self.stretch.replayed[0])[chosen].sum())
        if arrived <= _SEEN * float(np.square(self.stretch.replayed[0][chosen]).sum()):
            return None
        return float(self.stretch.errors[0][chosen].sum()) * float(np.square(noise).sum()) / arrived

    def axes_apart(self) -> Iterator[Sharing]:
        """Axes of the array of which each index reaches an index of the result alone."""
        for axis, length in enumerate(self.array.shape):
            if length > 1 and self.array.size // length >= _FEW and self.axis_reached(axis) is not None:
                yield Sharing(axis=axis)

    def axis_reached(self, axis: int) -> int | None:
        """The axis of the result whose index 1 alone changes with index 1 of an axis of the array."""
        where = (slice(None),) * axis + (1,)

        def moved(array: np.ndarray) -> np.ndarray:
            changed = array.copy()
            changed[where] *= 1 + _PROBE
            return changed

        made, length = self.result_of(moved), self.array.shape[axis]
        if made is None:
            return None
        off = np.abs(made - self.stretch.replayed[0]) > 0
        for own in range(off.ndim):
            touched = off.any(tuple(other for other in range(off.ndim) if other != own))
            if off.shape[own] == length and touched[1] and touched.sum() == 1:
                return own
        return None

    def errors_by_group(self, change: Change, reached: int | None) -> np.ndarray | None:
        """What a change leaves of the results that each group reaches."""
        errors = self.errors_of(change)
        if errors is None:
            return None
        if reached is None:
            return np.array([errors.sum()])
        return np.asarray(errors.sum(tuple(other for other in range(errors.ndim) if other != reached)))


def _scale_edits(probe: _Probe, size: float, label: str, sharing: Sharing) -> Iterator[StretchEdit]:
    """The grid with fitted scales that leaves least: of the usual numbers of levels, cut off or as wide as the array is."""
    largest = np.maximum(sharing.reduce(np.abs(as_float64(probe.array)), np.maximum), np.finfo(np.float64).tiny)
    reached = None if sharing.axis is None else probe.axis_reached(sharing.axis)
    found: list[tuple[float, int, _Levels]] = []
    for bits, cuts in itertools.product(_USUAL_BITS, (True, False)):
        most = 2 ** (bits - 1) - 1
        levels = _Levels(scales=largest / most, low=float(-most), high=float(most)) if cuts else _Levels(largest / most)
        fitted = _fit_scales(probe, size, levels, _CUT if cuts else _WIDE, min(0.5 / most, _APART), reached)
        if fitted is not None:
            # With a zero point a grid is as wide as both ends are apart, and begins anywhere.
            ended = fitted[1] if cuts or sharing.axis is not None else _fit_ends(probe, fitted[1], bits)
            found.append((probe.left_by(ended.apply), bits, ended))
    for _, bits, levels in sorted(found, key=lambda one: one[0])[:1]:
        least, most_of_all = float(levels.scales.min()), float(levels.scales.max())
        steps = (
            f"of the step {least:.4g}" if levels.scales.size == 1 else f"of steps from {least:.3g} to {most_of_all:.3g}"
        )
        words = f"{label} quantized to {bits} bits {sharing.words}, {steps}"
        edit = edit_of_input(probe.place, words, 8 + FITTED_BITS * levels.scales.size, probe.index, levels.apply)
        yield replace(edit, numbers={"step": least, "largest step": most_of_all})


@dataclass(frozen=True, slots=True)
class _Levels:
    """Integers from `low` to `high`, times `scales` of each group (broadcast to the array)."""

    scales: np.ndarray
    low: float = -math.inf
    high: float = math.inf

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The array on them, in its own type."""
        return np.asarray(np.clip(np.round(array / self.scales), self.low, self.high) * self.scales, array.dtype)


def _fit_scales(
    probe: _Probe, size: float, levels: _Levels, ends: tuple[float, float], apart: float, reached: int | None
) -> tuple[float, _Levels] | None:
    """The levels whose scales, between `ends` times theirs and `apart` (relative) at first, leave least; None if none will do."""
    count = int(math.log(ends[1] / ends[0]) / apart) + 2
    if (count + 2 * _ZOOMS * _LOOKED_AT) * (probe.array.size + probe.stretch.found[0].size) > _WORK:
        return None
    unit = levels.scales

    def scaled(factors: np.ndarray) -> _Levels:
        return replace(levels, scales=unit * factors.reshape(unit.shape))

    moved = [_squares_moved(scaled(np.full(unit.size, factor)), probe.array) for factor in np.geomspace(*ends, 5)]
    best, left = np.ones(unit.size), probe.errors_by_group(lambda array: array, reached)
    if left is None or not min(moved) / _LIKELY <= size <= max(moved) * _LIKELY:
        return None
    whole = float(left.sum())

    def try_factors(factors: np.ndarray, best: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = probe.errors_by_group(scaled(factors).apply, reached)
        if found is None:
            return best, left
        better = found < left
        return np.where(better, factors, best), np.where(better, found, left)

    for factor in np.geomspace(*ends, count):
        best, left = try_factors(np.full(unit.size, factor), best, left)
    if float(left.sum()) > (1 - _WORTH) * whole:
        return None
    found = []
    for low in (levels.low, levels.low - 1):  # the lowest of all integers may be used too
        levels, best_of, left_of = replace(levels, low=low), best, left + math.inf
        for zoom in range(_ZOOMS):
            around = best_of
            for part in np.linspace(-1, 1, _LOOKED_AT):
                best_of, left_of = try_factors(around * (1 + part * apart / _ZOOM**zoom), best_of, left_of)
        found.append((float(left_of.sum()), scaled(best_of)))
    return min(found, key=lambda one: one[0])


def _fit_ends(probe: _Probe, levels: _Levels, bits: int) -> _Levels:
    """Levels with the zero point that leaves least."""

    def beginning(zero: int) -> _Levels:
        return replace(levels, low=float(-zero), high=float(2**bits - 1 - zero))

    return beginning(_least_of(lambda zero: probe.left_by(beginning(zero).apply), 2**bits - 1))


def _cut_edits(probe: _Probe, label: str) -> Iterator[StretchEdit]:
    """Without the elements that are smaller than a bound that is fitted, or cut off there on both sides."""
    sizes = np.sort(np.abs(as_float64(probe.array)).ravel())
    if _PARTS * (probe.array.size + probe.stretch.found[0].size) > _WORK:
        return
    for small in (True, False):

        def left(place: int, small: bool = small) -> float:  # noqa: FBT001 - one of two ways
            return probe.left_by(cutting(_bound_at(sizes, place), small=small))

        bound = _bound_at(sizes, _least_of(left, sizes.size))
        yield cut_input(probe.place, probe.index, label, bound, small=small)


def _bound_at(sizes: np.ndarray, place: int) -> float:
    """Between two of the sizes."""
    return float(sizes[max(place - 1, 0)] + sizes[min(place, sizes.size - 1)]) / 2


def _least_of(measure: Callable[[int], float], count: int) -> int:
    """The place, of so many, where a measure that has one minimum is least: some parts, and then parts between the nearest."""
    low, high = 0, count
    while True:
        places = sorted({low + (high - low) * part // _PARTS for part in range(_PARTS + 1)})
        found = [measure(place) for place in places]
        nearest = int(np.argmin(found))
        if len(places) <= _PARTS:
            return places[nearest]
        low, high = places[max(nearest - 1, 0)], places[min(nearest + 1, len(places) - 1)]
