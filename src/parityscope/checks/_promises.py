"""What operators promise of their results -> the elements that break it: ranges, sums to one, indices of the best.

Only the values themselves are looked at; no reference is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from parityscope.checks._common import number

__all__ = ["COARSE", "Broken", "broken_index", "broken_range", "broken_sums"]

# Roundings that a sum may be off by: of its terms, which no format in use rounds coarser than bfloat16, or of its partial
# sums in the format that the candidate stores, times the square root of their number. Random signs, and some to spare.
_SUMS = 4.0
# Who declares FP32 may still store halves, and that is no impossible value: a bound may be off by a bfloat16's rounding.
COARSE = 2.0**-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """How many elements break a promise, in words what they do, and where the worst is.

    `places` are those elements: bool, of the tensor's shape or one that broadcasts to it.
    """

    count: int
    words: str
    index: tuple[int, ...]
    places: np.ndarray


def broken_range(values: np.ndarray, low: float, high: float, rounding: float) -> Broken | None:
    """The elements outside [low, high] by more than `rounding` of the bound (relative); NaN is not judged."""
    found = np.asarray(values, np.float64)
    slack_low = abs(low) * rounding if math.isfinite(low) else 0.0
    slack_high = abs(high) * rounding if math.isfinite(high) else 0.0
    with np.errstate(invalid="ignore"):
        over = np.maximum(found - (high + slack_high), (low - slack_low) - found)
    over = np.where(np.isnan(over), -np.inf, over)
    bad = over > 0
    if not bad.any():
        return None
    worst = tuple(int(i) for i in np.unravel_index(int(over.argmax()), over.shape))
    bound = f"{number(low)} to {number(high)}"
    return Broken(count=int(bad.sum()), words=f"{number(float(found[worst]))} outside {bound}", index=worst, places=bad)


def broken_sums(values: np.ndarray, axis: int, rounding: float, *, logarithms: bool = False) -> Broken | None:
    """The rows along `axis` that do not sum to one within rounding; rows with a NaN or Inf are not judged."""
    found = np.asarray(values, np.float64)
    if found.ndim == 0 or not -found.ndim <= axis < found.ndim or not found.size:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (np.exp(found) if logarithms else found).sum(axis=axis)
    off = np.abs(sums - 1.0)
    off = np.where(np.isfinite(off), off, -np.inf)
    # A rounded logarithm of size l is an error of l times that in its exponential.
    scale = max(1.0, float(np.abs(found[np.isfinite(found)]).max())) if logarithms and np.isfinite(found).any() else 1.0
    bad = off > _SUMS * scale * max(COARSE, rounding * math.sqrt(found.shape[axis]))
    if not bad.any():
        return None
    worst = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    said = "exponentials of row" if logarithms else "row"
    words = f"a {said} sums to {number(float(sums[worst]))}"
    return Broken(count=int(bad.sum()), words=words, index=worst, places=np.expand_dims(bad, axis))


def broken_index(indices: np.ndarray, array: np.ndarray, axis: int, *, largest: bool) -> Broken | None:
    """The indices along `axis` of `array` (axis kept, so of the same rank) that are outside, or at which another is better.

    `array` is what the candidate itself computed: equal values may be told apart by chance, and are all right.
    """
    outside = broken_range(indices, 0.0, array.shape[axis] - 1.0, 0.0)
    if outside is not None or indices.ndim != array.ndim or np.isnan(array).any():
        return outside
    wide = array.astype(np.float64) * (1.0 if largest else -1.0)
    missed = wide.max(axis=axis, keepdims=True) - np.take_along_axis(wide, indices.astype(np.int64), axis=axis)
    if not (missed > 0).any():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(missed.argmax()), missed.shape))
    words = f"index {int(indices[place])}, and another is better by {number(float(missed[place]))}"
    return Broken(count=int((missed > 0).sum()), words=words, index=place, places=missed > 0)
