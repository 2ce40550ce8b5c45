"""What happened to a constant, in words: (reference's array, candidate's) -> `ConstantChange`.

Tried from the exact to the vague, and so from the shortest description to the longest: the same elements in another layout or
type, rounded to a format, on the grid that the candidate's file declares, changed at a few indices of one axis only, scaled,
shifted, cut off, reordered (`changes_of` of all hypotheses), on a grid that is fitted, nearly scaled, nearly rearranged, and last
the size of what no rule says: retrained, or replaced. Of what is very large only a part that differs is looked at so, and
that is said: each rule holds several copies of its elements in float64.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from parityscope.hypotheses.changes import FORMATS, changes_of, round_to_format
from parityscope.hypotheses.from_other_graph.gridding import grid_of
from parityscope.hypotheses.from_other_graph.rearranging import find_rearrangement, order_words
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How words begin that say no more than a size.
VAGUE = ("replaced", "differs", "every element")

_ANY_VALUE = "set to another order or value"  # of some indices: said where no change of the whole array says more

_EXACT = 1e-6  # relative to the largest element: a few FP32 roundings
_NEARLY = 0.3  # of a difference is left by what is told as most of it (a tenth, in squares), chosen
_RETRAINED = 0.1  # relative L2, chosen: fine-tuning moves weights by 1e-4 to 1e-2
_REPLACED = 0.5  # correlation below which two arrays have nothing to do with each other, chosen
_SHOWN = 4  # elements that are told one by one
_MOST = 1 << 18  # elements up to which every change is tried
LARGEST = 1 << 23  # elements of which all are looked at together, chosen: each copy of them in float64 takes 64 MiB
_MOST_AXES = 6
_MOST_ROWS = 64  # that are sought by likeness where none is equal
_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "square root": np.sqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "reciprocal square root": lambda array: 1.0 / np.sqrt(array),
    "exponential": np.exp,
    "logarithm": np.log,
}
_HALF_STEP = 0.5 + 1e-3
# Beyond the ends of a grid values are cut off there; chosen, as calibration with percentiles does.
_OUTSIDE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantChange:
    """Words that complete "constant w: ...". `group` is shared by constants to which the same happened ("": its own).

    `declared`: the candidate's file says so itself, by its types or its quantization.
    """

    words: str
    group: str = ""
    declared: bool = False


def change_of(before: np.ndarray, after: np.ndarray, grid: np.ndarray | None = None) -> ConstantChange:
    """What made `after` of `before`; `grid` is the step of quantization that the candidate declares for `after`."""
    if before.shape != after.shape:
        return ConstantChange(words=_describe_reshape(before, after))
    if before.dtype.kind not in "fV" or after.dtype.kind not in "fV":
        return _change_of_integers(before, after)
    if before.size > LARGEST:
        return _change_of_large(before, after, grid)
    with np.errstate(over="ignore"):
        kept = before.astype(after.dtype)
    if before.dtype != after.dtype and np.array_equal(kept, after, equal_nan=True):
        return ConstantChange(words=f"kept in {after.dtype}", group=f"types {after.dtype}", declared=True)
    reference, candidate = kept.astype(np.float64), after.astype(np.float64)
    # One rounding to the type, and the two of a folded product.
    exact = max(_EXACT, float(ml_dtypes.finfo(after.dtype).eps))
    largest = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    if grid is not None and largest > 0:
        exact = max(exact, _HALF_STEP * float(np.max(grid)) / largest)
    if grid is not None and _change_on_grid(reference, candidate, grid):
        return ConstantChange(words="quantized, each element within half a step", group="quantized", declared=True)
    if before.size > _SHOWN:
        for name in FORMATS:
            if _are_equal(round_to_format(name)(before), after, _EXACT):
                return ConstantChange(words=f"rounded to {name}", group=f"rounded {name}")
    if before.size <= _SHOWN:  # as the file has them, and not as they are in another type
        return ConstantChange(words=_list_elements(before.astype(np.float64), candidate).removeprefix(": "))
    words = next((words for words in _describe_change(reference, candidate, exact) if words), "")
    if words:
        return ConstantChange(words=words, group=words if words.startswith("quantized") else "")
    return (
        _change_to_grid(reference, candidate)
        or _nearest_change(reference, candidate, before.dtype)
        or _change_by_size(reference, candidate)
    )


def _change_of_large(before: np.ndarray, after: np.ndarray, grid: np.ndarray | None) -> ConstantChange:
    """By indices that differ, along the axis of which the fewest do: as many as are small enough to be looked at together."""
    touched = _touched_indices(before, after)
    if not touched[0].size:
        return ConstantChange(words=f"kept in {after.dtype}", group=f"types {after.dtype}", declared=True)
    axis = min(range(before.ndim), key=lambda axis: (touched[axis].size / before.shape[axis], -before.shape[axis]))
    length, differing = before.shape[axis], touched[axis]
    rows = differing[: max(1, min(LARGEST // (before.size // length), length - 1))]
    steps = None if grid is None else np.take(np.broadcast_to(grid, before.shape), rows, axis)
    found = change_of(np.take(before, rows, axis), np.take(after, rows, axis), steps)
    words = found.words if differing.size == length else f"{_describe_indices(before, axis, differing)}: {found.words}"
    if rows.size < differing.size:
        words = f"{words} (told by {rows.size} of {differing.size} indices of axis {axis})"
    return replace(found, words=words)


def _touched_indices(before: np.ndarray, after: np.ndarray) -> list[np.ndarray]:
    """Of each axis the indices at which the arrays, both in the type of `after`, differ; NaN is equal to NaN."""
    touched = [np.zeros(length, np.bool_) for length in before.shape]
    for part in _parts_of(before):
        with np.errstate(over="ignore"):
            one, other = before[part].astype(after.dtype), after[part]
        off = (one != other) & ~(np.isnan(one) & np.isnan(other))
        for axis in range(before.ndim):
            place = part if axis == 0 else slice(None)
            touched[axis][place] |= off.any(tuple(each for each in range(before.ndim) if each != axis))
    return [np.flatnonzero(each) for each in touched]


def _parts_of(array: np.ndarray) -> list[slice]:
    """Slices along the first axis that are small enough to be looked at together, if one index is."""
    length = len(array) if array.ndim else 0
    rows = max(1, LARGEST * length // max(array.size, 1))
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def _change_to_grid(before: np.ndarray, after: np.ndarray) -> ConstantChange | None:
    """On a grid that no file declares."""
    grid = grid_of(before, after)
    if grid is None:
        return None
    low, high = grid.steps
    step = f"steps from {low:.3g} to {high:.3g}" if high > low * (1 + _EXACT) else f"the step {low:.4g}"
    cut = f", {grid.cut:.1%} of the elements cut off at its ends" if grid.cut else ""
    return ConstantChange(
        words=f"quantized to {grid.bits} bits {grid.words}, {step}{cut}", group=f"grid {grid.bits} {grid.words}"
    )


def _nearest_change(before: np.ndarray, after: np.ndarray, kind: np.dtype) -> ConstantChange | None:
    """Scaled, shifted or rearranged, and besides changed in another way, which is told too."""
    if not (np.isfinite(before).all() and np.isfinite(after).all()) or before.size <= _SHOWN:
        return None
    moved = float(np.linalg.norm(after - before))
    for words, fitted in _fit_scale_and_offset(before, after):
        left = float(np.linalg.norm(after - fitted))
        if left <= _NEARLY * moved and left <= _RETRAINED * float(np.linalg.norm(after)):
            rest = change_of(fitted.astype(kind), after.astype(kind)).words
            return ConstantChange(words=f"about {words}; then {rest}")
    found = find_rearrangement(before, after)
    if found is None:
        return None
    words, array = found
    same = _are_equal(array, after, _EXACT)
    return ConstantChange(
        words=words if same else f"{words}; then {change_of(array.astype(kind), after.astype(kind)).words}"
    )


def _fit_scale_and_offset(before: np.ndarray, after: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The factor, and the factor and offset, that come nearest."""
    power = float(np.vdot(before, before))
    factor = float(np.vdot(before, after)) / power if power else 0.0
    if factor:
        yield f"times {factor:.4g}", before * factor
    offset = float((after - before).mean())
    yield f"plus {offset:.4g}", before + offset
    variance = float(before.var())
    if variance:
        slope = float(((before - before.mean()) * (after - after.mean())).mean() / variance)
        level = float(after.mean() - slope * before.mean())
        yield f"times {slope:.4g} plus {level:.4g}", before * slope + level


def are_identical(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two constants are of one type and shape, and equal in every element; NaN is equal to NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    nan = one.dtype.kind == "f"
    parts = _parts_of(one) if one.size > LARGEST else [...]
    return all(np.array_equal(one[part], other[part], equal_nan=nan) for part in parts)


def have_same_elements(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two constants are the same but for rounding."""
    return one.shape == other.shape and one.dtype == other.dtype and _are_equal(one, other, _EXACT)


def _change_by_size(before: np.ndarray, after: np.ndarray) -> ConstantChange:
    size = float(np.linalg.norm(before))
    if not size:
        return ConstantChange(words="all zero, and is not any more")
    with np.errstate(all="ignore"):
        moved = float(np.linalg.norm(after - before)) / size if size else float("inf")
        alike = float(np.vdot(before, after) / (size * np.linalg.norm(after)))
    if moved <= _RETRAINED:
        return ConstantChange(
            words=f"every element differs a little ({moved:.1e} in all), as after more training", group="retrained"
        )
    if not alike >= _REPLACED:
        return ConstantChange(words=f"replaced (correlation {alike:.2g})")
    return ConstantChange(words=f"differs by {moved:.2g} (correlation {alike:.3g})")


def _describe_reshape(before: np.ndarray, after: np.ndarray) -> str:
    for order in itertools.permutations(range(before.ndim)) if before.ndim <= _MOST_AXES else ():
        if tuple(before.shape[axis] for axis in order) == after.shape and _are_equal(
            before.transpose(order), after, _EXACT
        ):
            return f"transposed {list(order)}"
    if before.size == after.size and _are_equal(before.reshape(-1), after.reshape(-1), _EXACT):
        return f"of shape {list(after.shape)} instead of {list(before.shape)}, the same elements"
    return f"of shape {list(after.shape)} instead of {list(before.shape)}{_list_elements(before, after)}"


def _change_of_integers(before: np.ndarray, after: np.ndarray) -> ConstantChange:
    if before.dtype.kind in "fV" and after.dtype.kind in "iu":
        return ConstantChange(words=f"kept in {after.dtype}", group="quantized", declared=True)
    told = _list_elements(before, after)
    if told:
        return ConstantChange(words=told.removeprefix(": "))
    if before.dtype == after.dtype and before.dtype.kind in "iub" and before.size <= _MOST:
        for words, change in changes_of(before):
            if np.array_equal(change(before), after):
                return ConstantChange(words=words)
    same = before.dtype == after.dtype
    count = int((before != after).sum()) if same else before.size
    return ConstantChange(
        words=f"{count} of {before.size} elements differ" if same else f"{after.dtype} instead of {before.dtype}"
    )


def _list_elements(before: np.ndarray, after: np.ndarray) -> str:
    if max(before.size, after.size) > 2 * _SHOWN:
        return ""
    one, other = (", ".join(_format_number(x) for x in array.reshape(-1).tolist()) for array in (before, after))
    return f": {one or 'nothing'} became {other or 'nothing'}"


def _format_number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _change_on_grid(before: np.ndarray, after: np.ndarray, grid: np.ndarray) -> bool:
    off = np.abs(after - before) > _HALF_STEP * np.broadcast_to(grid, before.shape)
    cut = off & (np.abs(after) < np.abs(before)) & (np.sign(after) == np.sign(before))
    return bool((off == cut).all()) and float(cut.mean()) <= _OUTSIDE


def _are_equal(one: np.ndarray, other: np.ndarray, exact: float) -> bool:
    """Whether two arrays agree within `exact` of the largest element."""
    if one.dtype.kind not in "fV":
        return bool(np.array_equal(one, other))
    if one.size > LARGEST and len(one) > 1:
        largest = max(
            float(np.abs(part[np.isfinite(part)]).max(initial=0)) for part in map(one.__getitem__, _parts_of(one))
        )
        return all(_agree(one[part], other[part], exact * largest) for part in _parts_of(one))
    reference = one.astype(np.float64)
    return _agree(reference, other, exact * float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0)))


def _agree(one: np.ndarray, other: np.ndarray, allowed: float) -> bool:
    """Whether no element is further off than `allowed`, and all are finite together."""
    reference, candidate = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(candidate)):
        return False
    return bool((np.abs(reference[finite] - candidate[finite]) <= allowed).all())


def _describe_change(before: np.ndarray, after: np.ndarray, exact: float) -> Iterator[str]:
    """Words for what is the same everywhere, or only at some indices of one axis; "" where a rule does not fit."""
    largest = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    off = before != after if exact <= _EXACT else np.abs(after - before) > exact * largest
    order = _change_at_indices(before, after, off, exact)
    if order.endswith(("exchanged", "order")):
        yield order
    if int(off.sum()) <= _SHOWN // 2:
        places = [tuple(map(int, place)) for place in np.argwhere(off)]
        yield "; ".join(f"element {list(place)}: {before[place]:.6g} became {after[place]:.6g}" for place in places)
        return
    yield _describe_everywhere(before, after, exact)
    if not order.endswith(_ANY_VALUE):
        yield order
    yield _change_along_axes(before, after, exact)
    if before.size <= _MOST:
        single = before.astype(np.float32)
        for words, change in changes_of(single):
            changed = change(single)
            if changed.shape == after.shape and _are_equal(changed, after, exact):
                yield words
    yield order


def _describe_everywhere(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    if not after.any():
        return "all zero"
    finite = np.isfinite(before) & np.isfinite(after)
    reference, candidate = before[finite], after[finite]
    power = float(np.vdot(reference, reference))
    factor = float(np.vdot(reference, candidate)) / power if power else 0.0
    if factor and _are_equal(before * factor, after, exact):
        return f"times {factor:.5g}"
    offset = float((candidate - reference).mean()) if reference.size else 0.0
    if offset and _are_equal(before + offset, after, exact):
        return f"plus {offset:.5g}"
    if _are_equal(np.abs(before), after, exact):
        return "without its signs"
    low, high = float(after.min()), float(after.max())
    if (low > before.min() or high < before.max()) and _are_equal(np.clip(before, low, high), after, exact):
        return f"cut off at {low:.4g} and {high:.4g}"
    for name, function in _FUNCTIONS.items():
        with np.errstate(all="ignore"):
            if _are_equal(function(before), after, exact):
                return f"its {name}"
    zeroed = after == 0
    if zeroed.any() and _are_equal(np.where(zeroed, 0.0, before), after, exact):
        return ""  # told by its indices first
    if reference.size > 2 and float(np.ptp(reference)):
        slope = float(np.cov(reference.reshape(-1), candidate.reshape(-1))[0, 1] / reference.var(ddof=1))
        level = float(candidate.mean() - slope * reference.mean())
        if _are_equal(before * slope + level, after, exact):
            return f"times {slope:.5g} plus {level:.5g}"
    return ""


def _change_at_indices(before: np.ndarray, after: np.ndarray, off: np.ndarray, exact: float) -> str:
    """What happened where only a part of one axis differs."""
    best: tuple[float, int, np.ndarray] | None = None
    for axis in range(before.ndim):
        others = tuple(other for other in range(before.ndim) if other != axis)
        touched = np.flatnonzero(off.any(others))
        part = touched.size / before.shape[axis]
        if before.shape[axis] > 1 and (best is None or part < best[0]):
            best = part, axis, touched
    if best is None:
        return ""
    _, axis, touched = best
    reference, candidate = (np.take(array, touched, axis) for array in (before, after))
    where = _describe_indices(before, axis, touched)
    order = _match_slices(reference, candidate, axis, exact)
    if order is not None:
        if touched.size == 2:
            return f"{where} exchanged"
        if best[0] == 1.0:
            step = int(-order[0]) % touched.size
            if np.array_equal(np.roll(np.arange(touched.size), step), order):
                back = step > touched.size // 2
                return f"rolled by {step - touched.size if back else step} along {_describe_axis(before, axis)}"
        found = np.arange(before.shape[axis])
        found[touched] = touched[order]
        if order_words(found):
            return f"{order_words(found)} along {_describe_axis(before, axis)}"
        return f"{where} in another order"
    if best[0] == 1.0:
        return ""
    words = _describe_everywhere(reference, candidate, exact) or (_ANY_VALUE if touched.size > 1 else "")
    zeroed = _describe_zeroed(reference, candidate, exact)
    return f"{where}: {zeroed or words or _change_by_size(reference, candidate).words}"


def _describe_zeroed(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    zeroed = (after == 0) & (before != 0)
    if zeroed.any() and _are_equal(np.where(zeroed, 0.0, before), after, exact):
        if zeroed.all():
            return "zero"
        least, largest = float(np.abs(before[~zeroed]).min(initial=np.inf)), float(np.abs(before[zeroed]).max())
        small = f", all that are below {least:.3g} in size" if largest < least else ""
        return f"{int(zeroed.sum())} of {before.size} elements zero{small}"
    return ""


def _change_along_axes(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    """Another factor, offset, or both at every index of an axis."""
    for axis in range(before.ndim if before.ndim > 1 else 0):
        others = tuple(other for other in range(before.ndim) if other != axis)
        power = np.square(before).sum(others, keepdims=True)
        with np.errstate(all="ignore"):
            factors = np.where(power > 0, (before * after).sum(others, keepdims=True) / power, 1.0)
        if _are_equal(before * factors, after, exact):
            return f"scaled along {_describe_axis(before, axis)} by factors from {factors.min():.4g} to {factors.max():.4g}"
        level = (after - before).mean(others, keepdims=True)
        if _are_equal(before + level, after, exact):
            return (
                f"shifted along {_describe_axis(before, axis)} by offsets from {level.min():.4g} to {level.max():.4g}"
            )
        middle, its_middle = (array.mean(others, keepdims=True) for array in (before, after))
        spread = np.square(before - middle).sum(others, keepdims=True)
        with np.errstate(all="ignore"):
            slope = ((before - middle) * (after - its_middle)).sum(others, keepdims=True) / spread
        if before.size > 4 * slope.size and np.isfinite(slope).all():
            level = its_middle - slope * middle
            if _are_equal(before * slope + level, after, exact):
                return (
                    f"scaled along {_describe_axis(before, axis)} by factors from {slope.min():.4g} to {slope.max():.4g} "
                    f"and shifted by offsets from {level.min():.4g} to {level.max():.4g}"
                )
    return _describe_zeroed(before, after, exact)


def _match_slices(before: np.ndarray, after: np.ndarray, axis: int, exact: float) -> np.ndarray | None:
    """Which index of `before` each index of `after` is; None where they are not the same slices."""
    reference, candidate = (np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (before, after))
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(reference):
        places.setdefault(row.tobytes(), []).append(place)
    order = []
    for row in candidate:
        found = places.get(row.tobytes())
        if not found and len(reference) <= _MOST_ROWS:
            found = [
                place for place, other in enumerate(reference) if place not in order and _are_equal(other, row, exact)
            ]
        if not found:
            return None
        order.append(found.pop(0))
    return np.array(order) if order != sorted(order) else None


def _describe_indices(array: np.ndarray, axis: int, touched: np.ndarray) -> str:
    shown = [str(int(index)) for index in touched[:_SHOWN]]
    word = "channel" if array.ndim > 1 and axis == 0 else "index"
    said = " and ".join(shown) if len(shown) <= 2 else ", ".join(shown)
    more = f" and {touched.size - _SHOWN} more" if touched.size > _SHOWN else ""
    return f"{word} {said}{more}" + ("" if axis == 0 else f" of axis {axis}")


def _describe_axis(array: np.ndarray, axis: int) -> str:
    return "its channels" if array.ndim > 1 and axis == 0 else f"axis {axis}"
