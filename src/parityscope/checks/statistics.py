"""What the values of an input give away: constants, and noise that no sensor makes.

Noise is told by two things together. Its values follow one of the distributions that generators draw from: the
Kolmogorov-Smirnov distance to it, nothing fitted, is below 2.47 / sqrt(n), which true noise exceeds once in a hundred
thousand (the asymptotic distribution: 2 exp(-2 * 2.47^2) = 0.00001): of several samples all have to match. And neighbours
know nothing of each other: the correlation along every axis is below 4 / sqrt(n). Pictures, sounds and features of them
fail the second by far, standardised tables the first. From 1,024 elements on, so that a match is no chance.

Beside them stands how much of a difference a hypothesis explains.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ENOUGH = 1024
_KS = 2.47
_CORRELATED = 4.0
_MOST = 1 << 16  # elements looked at: more would tell no more
_SHORT = 8  # axes shorter than this have no neighbours to speak of


def is_constant(array: np.ndarray) -> bool:
    """Whether every element has the value of the first; an empty array and a single element have not."""
    flat = array.reshape(-1)
    return flat.size > 1 and bool((flat == flat[0]).all())


def noise_of(array: np.ndarray) -> str:
    """The generator that could have drawn `array` (floats of any shape), in words; "" if none that is known here."""
    if array.dtype.kind != "f" or array.size < ENOUGH or not np.isfinite(array).all() or _is_correlated(array):
        return ""
    flat = array.reshape(-1)[:_MOST].astype(np.float64)
    for words, cumulative in _GENERATORS.items():
        if _ks_statistic(np.sort(flat), cumulative) < _KS / math.sqrt(flat.size):
            return words
    return ""


def ks_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two sets of values, in [0, 1]: 0 alike, 1 apart."""
    a, b = (np.sort(each.reshape(-1)[:_MOST].astype(np.float64)) for each in (first, second))
    every = np.concatenate([a, b])
    below = [np.searchsorted(each, every, side="right") / each.size for each in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def _is_correlated(array: np.ndarray) -> bool:
    values = array.astype(np.float64)
    values = values - values.mean()
    size = float(np.square(values).sum())
    if size == 0.0:
        return True
    for axis, length in enumerate(array.shape):
        if length < _SHORT:
            continue
        ahead = np.take(values, range(1, length), axis=axis)
        behind = np.take(values, range(length - 1), axis=axis)
        if abs(float((ahead * behind).sum())) > _CORRELATED * size / math.sqrt(array.size):
            return True
    return False


def _ks_statistic(ordered: np.ndarray, cumulative: Callable[[np.ndarray], np.ndarray]) -> float:
    expected = cumulative(ordered)
    steps = np.arange(ordered.size + 1) / ordered.size
    return float(max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max()))


def _uniform_cumulative(low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.clip((x - low) / (high - low), 0.0, 1.0)


def _normal_cumulative(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])


_GENERATORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform noise in [0, 1)": _uniform_cumulative(0.0, 1.0),
    "uniform noise in [-1, 1)": _uniform_cumulative(-1.0, 1.0),
    "uniform noise in [0, 255)": _uniform_cumulative(0.0, 255.0),
    "standard normal noise": _normal_cumulative,
}


def explained_share(candidate: np.ndarray, replayed: np.ndarray, hypothesis: np.ndarray) -> float:
    """1 - |c - f_h|^2 / |c - f|^2 over the elements finite in all three; NaN where nothing was introduced.

    Elements that are not finite in the candidate must be the same non-finite value under the hypothesis: each that
    is not counts as fully unexplained.
    """
    c, f, h = (np.asarray(array, dtype=np.float64).ravel() for array in (candidate, replayed, hypothesis))
    broken = ~np.isfinite(c) & np.isfinite(f)
    if broken.any():
        same = (c == h) | (np.isnan(c) & np.isnan(h))
        extra = int((~np.isfinite(h) & np.isfinite(c)).sum())
        return float((broken & same).sum()) / (int(broken.sum()) + extra)
    finite = np.isfinite(c) & np.isfinite(f)
    if not np.isfinite(h[finite]).all():
        return -math.inf
    introduced = float(np.square(c[finite] - f[finite]).sum())
    if introduced == 0.0:
        return math.nan
    return 1.0 - float(np.square(c[finite] - h[finite]).sum()) / introduced
