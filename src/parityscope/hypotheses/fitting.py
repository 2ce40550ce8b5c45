"""Numbers that are fitted: a slope, a line, the number that people would have chosen, and what each costs in bits."""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


FITTED_BITS = 32.0  # of a number that was fitted: float32's
AS_CHOSEN = 2e-4  # relative: as far as FP16 rounds

_TURNS, _STEP = 12, 1e-3  # of Gauss-Newton, and what slopes are measured over
_SHORT = 5.0  # bits of one that people choose
_WRITTEN = 10.0  # of one with two digits: ninety of them in each of some ten decades
_CHOSEN = sorted(
    (0, 1, -1, 2, -2, 0.5, -0.5, 3, 4, 6, 8, 10, 255, 1 / 255, 127, 128, -128, 0.25, 0.125, 0.1, 0.2, 0.01)
)
_FROM, _TO = (
    [one + side * AS_CHOSEN * max(abs(one), 1e-3) for one in _CHOSEN] for side in (-1, 1)
)  # what is nearly each


def round_to_nice(value: float) -> tuple[float, float]:
    """A fitted number, made one that people choose where it nearly is, and its bits."""
    place = bisect.bisect_right(_FROM, value) - 1
    if place >= 0 and _FROM[place] <= value <= _TO[place]:
        return float(_CHOSEN[place]), _SHORT
    written = float(f"{value:.1e}")
    if abs(value - written) <= AS_CHOSEN * abs(written):
        return written, _WRITTEN
    return float(value), FITTED_BITS


def slope_through_origin(x: np.ndarray, y: np.ndarray) -> float:
    """The factor of `x` nearest to `y`; float64, (n,)."""
    squares = float(np.dot(x, x))
    return float(np.dot(x, y)) / squares if squares else 0.0


def fit_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The factor of `x` and the offset that are nearest to `y`; float64, (n,)."""
    slope = slope_through_origin(x - x.mean(), y - y.mean())
    return slope, float(y.mean() - slope * x.mean())


@np.errstate(over="ignore", invalid="ignore")  # numbers that run away are no better than those before
def fit_numbers(
    left: Callable[[tuple[float, ...]], np.ndarray], start: tuple[float, ...], turns: int = _TURNS
) -> tuple[float, tuple[float, ...]]:
    """The squared error left and the numbers, by Gauss-Newton from a start; `left` gives what some numbers leave, (n,)."""
    values, rest = start, left(start)
    for _ in range(turns):
        slopes = []
        for place, value in enumerate(values):
            by = _STEP * max(abs(value), 0.1)
            beside = (*values[:place], value + by, *values[place + 1 :])
            slopes.append((rest - left(beside)) / by)
        table = np.stack(slopes, 1)
        if not np.isfinite(table).all() or not table.any():
            break
        change = np.linalg.lstsq(table, rest, rcond=1e-9)[0]
        better = False
        for part in (1.0, 0.3):
            tried = tuple(float(value + part * by) for value, by in zip(values, change, strict=True))
            now = left(tried)
            if np.isfinite(now).all() and float(now @ now) < float(rest @ rest):
                better, gained = True, float(now @ now) < (1 - _STEP) * float(rest @ rest)
                values, rest = tried, now
                break
        if not better or not gained:
            break
    size = float(rest @ rest)
    return (size if math.isfinite(size) else math.inf), values
