"""What happened to a constant, in words: (reference's array, candidate's) -> `Change`.

Tried from the exact to the vague, and so from the shortest description to the longest: the same elements in another layout or
type, rounded to a format, on the grid that the candidate's file declares, changed at a few indices of one axis only, scaled,
shifted, cut off, reordered (`changes` of all hypotheses), on a grid that is fitted, nearly scaled, nearly rearranged, and last
the size of what no rule says: retrained, or replaced.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from parityscope.hypotheses.changes import FORMATS, changes, rounded
from parityscope.hypotheses.from_other_graph.gridding import grid_of
from parityscope.hypotheses.from_other_graph.rearranging import order_words, rearranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["VAGUE", "Change", "change_of", "same_elements"]

# How words begin that say no more than a size.
VAGUE = ("replaced", "differs", "every element")

_EXACT = 1e-6  # relative to the largest element: a few FP32 roundings
_NEARLY = 0.3  # of a difference is left by what is told as most of it (a tenth, in squares), chosen
_RETRAINED = 0.1  # relative L2, chosen: fine-tuning moves weights by 1e-4 to 1e-2
_REPLACED = 0.5  # correlation below which two arrays have nothing to do with each other, chosen
_SHOWN = 4  # elements that are told one by one
_MOST = 1 << 18  # elements up to which every change is tried
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
class Change:
    """Words that complete "constant w: ...". `group` is shared by constants to which the same happened ("": its own).

    `declared`: the candidate's file says so itself, by its types or its quantization.
    """

    words: str
    group: str = ""
    declared: bool = False


def change_of(before: np.ndarray, after: np.ndarray, grid: np.ndarray | None = None) -> Change:
    """What made `after` of `before`; `grid` is the step of quantization that the candidate declares for `after`."""
    if before.shape != after.shape:
        return Change(words=_reshaped(before, after))
    if before.dtype.kind not in "fV" or after.dtype.kind not in "fV":
        return _of_integers(before, after)
    with np.errstate(over="ignore"):
        kept = before.astype(after.dtype)
    if before.dtype != after.dtype and np.array_equal(kept, after, equal_nan=True):
        return Change(words=f"kept in {after.dtype}", group=f"types {after.dtype}", declared=True)
    mine, its = kept.astype(np.float64), after.astype(np.float64)
    # One rounding to the type, and the two of a folded product.
    exact = max(_EXACT, float(ml_dtypes.finfo(after.dtype).eps))
    largest = float(np.abs(mine[np.isfinite(mine)]).max(initial=0.0))
    if grid is not None and largest > 0:
        exact = max(exact, _HALF_STEP * float(np.max(grid)) / largest)
    if grid is not None and _on_grid(mine, its, grid):
        return Change(words="quantized, each element within half a step", group="quantized", declared=True)
    if before.size > _SHOWN:
        for name in FORMATS:
            if _equal(rounded(name)(before), after, _EXACT):
                return Change(words=f"rounded to {name}", group=f"rounded {name}")
    if before.size <= _SHOWN:  # as the file has them, and not as they are in another type
        return Change(words=_listed(before.astype(np.float64), its).removeprefix(": "))
    words = next((words for words in _described(mine, its, exact) if words), "")
    if words:
        return Change(words=words, group=words if words.startswith("quantized") else "")
    return _gridded(mine, its) or _nearly(mine, its, before.dtype) or _by_size(mine, its)


def _gridded(before: np.ndarray, after: np.ndarray) -> Change | None:
    """On a grid that no file declares."""
    grid = grid_of(before, after)
    if grid is None:
        return None
    low, high = grid.steps
    step = f"steps from {low:.3g} to {high:.3g}" if high > low * (1 + _EXACT) else f"the step {low:.4g}"
    cut = f", {grid.cut:.1%} of the elements cut off at its ends" if grid.cut else ""
    return Change(
        words=f"quantized to {grid.bits} bits {grid.words}, {step}{cut}", group=f"grid {grid.bits} {grid.words}"
    )


def _nearly(before: np.ndarray, after: np.ndarray, kind: np.dtype) -> Change | None:
    """Scaled, shifted or rearranged, and besides changed in another way, which is told too."""
    if not (np.isfinite(before).all() and np.isfinite(after).all()) or before.size <= _SHOWN:
        return None
    moved = float(np.linalg.norm(after - before))
    for words, fitted in _fits(before, after):
        left = float(np.linalg.norm(after - fitted))
        if left <= _NEARLY * moved and left <= _RETRAINED * float(np.linalg.norm(after)):
            rest = change_of(fitted.astype(kind), after.astype(kind)).words
            return Change(words=f"about {words}; then {rest}")
    found = rearranged(before, after)
    if found is None:
        return None
    words, array = found
    same = _equal(array, after, _EXACT)
    return Change(words=words if same else f"{words}; then {change_of(array.astype(kind), after.astype(kind)).words}")


def _fits(before: np.ndarray, after: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
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


def same_elements(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two constants are the same but for rounding."""
    return one.shape == other.shape and one.dtype == other.dtype and _equal(one, other, _EXACT)


def _by_size(before: np.ndarray, after: np.ndarray) -> Change:
    size = float(np.linalg.norm(before))
    if not size:
        return Change(words="all zero, and is not any more")
    with np.errstate(all="ignore"):
        moved = float(np.linalg.norm(after - before)) / size if size else float("inf")
        alike = float(np.vdot(before, after) / (size * np.linalg.norm(after)))
    if moved <= _RETRAINED:
        return Change(
            words=f"every element differs a little ({moved:.1e} in all), as after more training", group="retrained"
        )
    if not alike >= _REPLACED:
        return Change(words=f"replaced (correlation {alike:.2g})")
    return Change(words=f"differs by {moved:.2g} (correlation {alike:.3g})")


def _reshaped(before: np.ndarray, after: np.ndarray) -> str:
    for order in itertools.permutations(range(before.ndim)) if before.ndim <= _MOST_AXES else ():
        if tuple(before.shape[axis] for axis in order) == after.shape and _equal(
            before.transpose(order), after, _EXACT
        ):
            return f"transposed {list(order)}"
    if before.size == after.size and _equal(before.reshape(-1), after.reshape(-1), _EXACT):
        return f"of shape {list(after.shape)} instead of {list(before.shape)}, the same elements"
    return f"of shape {list(after.shape)} instead of {list(before.shape)}{_listed(before, after)}"


def _of_integers(before: np.ndarray, after: np.ndarray) -> Change:
    if before.dtype.kind in "fV" and after.dtype.kind in "iu":
        return Change(words=f"kept in {after.dtype}", group="quantized", declared=True)
    told = _listed(before, after)
    if told:
        return Change(words=told.removeprefix(": "))
    if before.dtype == after.dtype and before.dtype.kind in "iub" and before.size <= _MOST:
        for words, change in changes(before):
            if np.array_equal(change(before), after):
                return Change(words=words)
    same = before.dtype == after.dtype
    count = int((before != after).sum()) if same else before.size
    return Change(
        words=f"{count} of {before.size} elements differ" if same else f"{after.dtype} instead of {before.dtype}"
    )


def _listed(before: np.ndarray, after: np.ndarray) -> str:
    if max(before.size, after.size) > 2 * _SHOWN:
        return ""
    one, other = (", ".join(_number(x) for x in array.reshape(-1).tolist()) for array in (before, after))
    return f": {one or 'nothing'} became {other or 'nothing'}"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _on_grid(before: np.ndarray, after: np.ndarray, grid: np.ndarray) -> bool:
    off = np.abs(after - before) > _HALF_STEP * np.broadcast_to(grid, before.shape)
    cut = off & (np.abs(after) < np.abs(before)) & (np.sign(after) == np.sign(before))
    return bool((off == cut).all()) and float(cut.mean()) <= _OUTSIDE


def _equal(one: np.ndarray, other: np.ndarray, exact: float) -> bool:
    """Whether two arrays agree within `exact` of the largest element."""
    if one.dtype.kind not in "fV":
        return bool(np.array_equal(one, other))
    mine, its = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(mine)
    if not np.array_equal(finite, np.isfinite(its)):
        return False
    largest = float(np.abs(mine[finite]).max(initial=0.0))
    return bool((np.abs(mine[finite] - its[finite]) <= exact * largest).all())


def _described(before: np.ndarray, after: np.ndarray, exact: float) -> Iterator[str]:
    """Words for what is the same everywhere, or only at some indices of one axis; "" where a rule does not fit."""
    largest = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    off = before != after if exact <= _EXACT else np.abs(after - before) > exact * largest
    order = _at_indices(before, after, off, exact)
    if order.endswith(("exchanged", "order")):
        yield order
    if int(off.sum()) <= _SHOWN // 2:
        places = [tuple(map(int, place)) for place in np.argwhere(off)]
        yield "; ".join(f"element {list(place)}: {before[place]:.6g} became {after[place]:.6g}" for place in places)
        return
    yield _everywhere(before, after, exact)
    yield order
    yield _along_axes(before, after, exact)
    if before.size <= _MOST:
        single = before.astype(np.float32)
        for words, change in changes(single):
            changed = change(single)
            if changed.shape == after.shape and _equal(changed, after, exact):
                yield words


def _everywhere(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    if not after.any():
        return "all zero"
    finite = np.isfinite(before) & np.isfinite(after)
    mine, its = before[finite], after[finite]
    power = float(np.vdot(mine, mine))
    factor = float(np.vdot(mine, its)) / power if power else 0.0
    if factor and _equal(before * factor, after, exact):
        return f"times {factor:.5g}"
    offset = float((its - mine).mean()) if mine.size else 0.0
    if offset and _equal(before + offset, after, exact):
        return f"plus {offset:.5g}"
    if _equal(np.abs(before), after, exact):
        return "without its signs"
    low, high = float(after.min()), float(after.max())
    if (low > before.min() or high < before.max()) and _equal(np.clip(before, low, high), after, exact):
        return f"cut off at {low:.4g} and {high:.4g}"
    for name, function in _FUNCTIONS.items():
        with np.errstate(all="ignore"):
            if _equal(function(before), after, exact):
                return f"its {name}"
    zeroed = after == 0
    if zeroed.any() and _equal(np.where(zeroed, 0.0, before), after, exact):
        return ""  # told by its indices first
    if mine.size > 2 and float(np.ptp(mine)):
        slope = float(np.cov(mine.reshape(-1), its.reshape(-1))[0, 1] / mine.var(ddof=1))
        level = float(its.mean() - slope * mine.mean())
        if _equal(before * slope + level, after, exact):
            return f"times {slope:.5g} plus {level:.5g}"
    return ""


def _at_indices(before: np.ndarray, after: np.ndarray, off: np.ndarray, exact: float) -> str:
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
    mine, its = (np.take(array, touched, axis) for array in (before, after))
    where = _places(before, axis, touched)
    order = _reordered(mine, its, axis, exact)
    if order is not None:
        if touched.size == 2:
            return f"{where} exchanged"
        if best[0] == 1.0:
            step = int(-order[0]) % touched.size
            if np.array_equal(np.roll(np.arange(touched.size), step), order):
                back = step > touched.size // 2
                return f"rolled by {step - touched.size if back else step} along {_axis(before, axis)}"
        found = np.arange(before.shape[axis])
        found[touched] = touched[order]
        if order_words(found):
            return f"{order_words(found)} along {_axis(before, axis)}"
        return f"{where} in another order"
    if best[0] == 1.0:
        return ""
    words = _everywhere(mine, its, exact) or ("set to another order or value" if touched.size > 1 else "")
    zeroed = _zeroed(mine, its, exact)
    return f"{where}: {zeroed or words or _by_size(mine, its).words}"


def _zeroed(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    zeroed = (after == 0) & (before != 0)
    if zeroed.any() and _equal(np.where(zeroed, 0.0, before), after, exact):
        if zeroed.all():
            return "zero"
        least, largest = float(np.abs(before[~zeroed]).min(initial=np.inf)), float(np.abs(before[zeroed]).max())
        small = f", all that are below {least:.3g} in size" if largest < least else ""
        return f"{int(zeroed.sum())} of {before.size} elements zero{small}"
    return ""


def _along_axes(before: np.ndarray, after: np.ndarray, exact: float) -> str:
    """Another factor, offset, or both at every index of an axis."""
    for axis in range(before.ndim if before.ndim > 1 else 0):
        others = tuple(other for other in range(before.ndim) if other != axis)
        power = np.square(before).sum(others, keepdims=True)
        with np.errstate(all="ignore"):
            factors = np.where(power > 0, (before * after).sum(others, keepdims=True) / power, 1.0)
        if _equal(before * factors, after, exact):
            return f"scaled along {_axis(before, axis)} by factors from {factors.min():.4g} to {factors.max():.4g}"
        level = (after - before).mean(others, keepdims=True)
        if _equal(before + level, after, exact):
            return f"shifted along {_axis(before, axis)} by offsets from {level.min():.4g} to {level.max():.4g}"
        middle, its_middle = (array.mean(others, keepdims=True) for array in (before, after))
        spread = np.square(before - middle).sum(others, keepdims=True)
        with np.errstate(all="ignore"):
            slope = ((before - middle) * (after - its_middle)).sum(others, keepdims=True) / spread
        if before.size > 4 * slope.size and np.isfinite(slope).all():
            level = its_middle - slope * middle
            if _equal(before * slope + level, after, exact):
                return (
                    f"scaled along {_axis(before, axis)} by factors from {slope.min():.4g} to {slope.max():.4g} "
                    f"and shifted by offsets from {level.min():.4g} to {level.max():.4g}"
                )
    return _zeroed(before, after, exact)


def _reordered(before: np.ndarray, after: np.ndarray, axis: int, exact: float) -> np.ndarray | None:
    """Which index of `before` each index of `after` is; None where they are not the same slices."""
    mine, its = (np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (before, after))
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(mine):
        places.setdefault(row.tobytes(), []).append(place)
    order = []
    for row in its:
        found = places.get(row.tobytes())
        if not found and len(mine) <= _MOST_ROWS:
            found = [place for place, other in enumerate(mine) if place not in order and _equal(other, row, exact)]
        if not found:
            return None
        order.append(found.pop(0))
    return np.array(order) if order != sorted(order) else None


def _places(array: np.ndarray, axis: int, touched: np.ndarray) -> str:
    shown = [str(int(index)) for index in touched[:_SHOWN]]
    word = "channel" if array.ndim > 1 and axis == 0 else "index"
    said = " and ".join(shown) if len(shown) <= 2 else ", ".join(shown)
    more = f" and {touched.size - _SHOWN} more" if touched.size > _SHOWN else ""
    return f"{word} {said}{more}" + ("" if axis == 0 else f" of axis {axis}")


def _axis(array: np.ndarray, axis: int) -> str:
    return "its channels" if array.ndim > 1 and axis == 0 else f"axis {axis}"
