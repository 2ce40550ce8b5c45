"""The parameter of a claim that leaves least: a grid, golden section, a step of regression, and the shortest number as good.

The section ends at a part of the span, which may be many units in the last place of the parameter, and where nothing else
rounds (behind a Clip) each of them would be seen. There what is left is linear in the parameter: one step ends it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.explanation.claims import predict, stored

if TYPE_CHECKING:
    from parityscope.explanation.claims import Claim, Scene

__all__ = ["FITTING", "fitted"]

_STEPS = 32  # of the golden section, over an eighth of the span: 0.618^32 / 8 is 3e-8 of it
_GRID = 17  # points that the search starts from: behind a Relu a wrong sign has a minimum of its own
_DIGITS = (1, 2, 3, 4)  # people choose short numbers; the shortest that leaves no more than the best is reported
_AS_GOOD = 1e-6  # relative
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_NEAR = 2.0**-12  # of the parameter: beside it for the derivative; half of the digits of float32
FITTING = _GRID + 2 + _STEPS + 3 + len(_DIGITS)  # evaluations of one search


def fitted(scene: Scene, claim: Claim, span: tuple[float, float]) -> float:
    """The parameter that leaves least, by a grid and golden section (J. Kiefer, Proc. AMS 4, 1953)."""

    def rest(parameter: float) -> np.ndarray:
        exact = predict(scene, replace(claim, parameter=parameter))
        if exact is None:
            return np.full(scene.candidate.shape, np.inf)
        with np.errstate(invalid="ignore"):
            return np.asarray(scene.candidate - stored(claim, exact))

    def left(parameter: float) -> float:
        found = rest(parameter)
        finite = np.isfinite(found)
        return float(np.square(found[finite]).sum()) if finite.any() or not found.size else math.inf

    grid = np.linspace(*span, _GRID)
    lowest = int(np.argmin([left(float(each)) for each in grid]))
    low, high = float(grid[max(0, lowest - 1)]), float(grid[min(_GRID - 1, lowest + 1)])
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_inner, at_outer = left(inner), left(outer)
    for _ in range(_STEPS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _GOLDEN * (high - low)
            at_inner = left(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _GOLDEN * (high - low)
            at_outer = left(outer)
    at_best, best = min((at_inner, inner), (at_outer, outer))
    nearer = best + _step(rest(best), rest(best * (1.0 + _NEAR)), best * _NEAR)
    nearer = min(max(nearer, span[0]), span[1])
    at_best, best = min((at_best, best), (left(nearer), nearer))
    for digits in _DIGITS:
        short = float(f"{best:.{digits}g}")
        if left(short) <= at_best * (1.0 + _AS_GOOD):
            return short
    return float(np.float32(best))


def _step(here: np.ndarray, beside: np.ndarray, width: float) -> float:
    """How far the parameter is from the one that leaves least, as what is left of each element depends on it linearly."""
    both = np.isfinite(here) & np.isfinite(beside)
    change = here[both] - beside[both]
    norm2 = float(np.square(change).sum())
    return width * float(here[both] @ change) / norm2 if norm2 > 0 else 0.0
