"""The result as any function of one variable: a curve of few knots, a description and never a cause.

Between knots the curve is a line, and beyond the last ones these lines go on. Its values at the knots are those of least squares.
Where the error is largest there are more knots, as long as each saves more bits than it takes to say it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import FITTED_BITS
from parityscope.hypotheses.measures import as_float64
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.hypotheses.stretch import ComputedStretch

    Get = Callable[["ComputedStretch", int], np.ndarray]

_FIRST, _MOST = 9, 33  # knots: to begin with, and at most
_SPLIT = 8  # stretches between knots that are halved at once
_POINTS = 64  # that are drawn
_BESIDE = 4  # points that a stretch between knots must hold
_LOOKED_AT = 1 << 16  # elements; all six are chosen
_INPUTS = 2  # of the result's shape, that may be what the result is a curve of; chosen
_FLAT = 3.0  # times what a curve leaves: a step down no larger than that is none of a rising curve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedCurve:
    """What the result is a curve of (empty: of what the model says), its knots, and some elements; float64.

    `values` are what the candidate gives at `knots`, `model` is what the model says there. `points` (n, 2) are what the curve is
    of and what the candidate gave. `shape` says whether it rises.
    """

    source: str
    knots: np.ndarray
    values: np.ndarray
    model: np.ndarray
    points: np.ndarray
    shape: str

    def at(self, x: np.ndarray) -> np.ndarray:
        """The curve at any place."""
        return _interpolate(x, self.knots, self.values)


def curve_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """The result as a curve of what the model says, or of an input of its shape."""
    known, found = stretch.replayed[0], stretch.found[0]
    if not stretch.same_shape or known.ndim == 0:
        return
    sources: list[tuple[str, Get]] = [("", lambda one, sample: one.replayed[sample])]
    sources += [(name, lambda one, sample, n=name: as_float64(one.worlds[sample][n])) for name in _inputs_of(stretch)]
    for source, get in sources:
        x = get(stretch, 0)
        chosen = np.flatnonzero(stretch.fitted_on & np.isfinite(x) & np.isfinite(known) & np.isfinite(found))
        chosen = chosen[:: (chosen.size // _LOOKED_AT) | 1]  # an odd step meets every channel
        curve = _fit_curve(stretch, source, *(array.ravel()[chosen] for array in (x, known, found)))
        if curve is None:
            continue
        yield StretchEdit(
            words=f"a {curve.shape} of {source!r} in place of the result"
            if source
            else f"the result is a {curve.shape} of what the model says",
            bits=FITTED_BITS * curve.knots.size,
            whole=lambda one, sample, c=curve, g=get: c.at(g(one, sample)),
            curve=curve,
        )


def _inputs_of(stretch: ComputedStretch) -> list[str]:
    """What the stretch reads that has its result's shape and type, on every sample."""
    names = dict.fromkeys(name for step in stretch.steps for name in step.inputs)
    alike = [
        name
        for name in names
        if all(
            name in world and world[name].shape == base.shape and world[name].dtype == base.dtype
            for world, base in zip(stretch.worlds, stretch.base, strict=True)
        )
    ]
    return alike[:_INPUTS]


def _fit_curve(
    stretch: ComputedStretch, source: str, x: np.ndarray, known: np.ndarray, found: np.ndarray
) -> FittedCurve | None:
    """The curve of the shortest description; None of too few elements."""
    order = np.argsort(x, kind="stable")
    x, known, found = x[order], known[order], found[order]
    knots = _first_knots(x)
    if knots.size < 3:
        return None
    best: tuple[float, np.ndarray, np.ndarray] = (math.inf, knots, knots)
    while True:
        values = _values_at(knots, x, found)
        left = np.square(found - _interpolate(x, knots, values))
        length = FITTED_BITS * knots.size + stretch.weight * math.log2(max(float(left.mean()), stretch.floor))
        best = min(best, (length, knots, values), key=lambda one: one[0])
        more = _split_knots(knots, x, left)
        if more.size == knots.size or more.size > _MOST:
            break
        knots = more
    _, knots, values = best
    rest = math.sqrt(float(np.square(found - _interpolate(x, knots, values)).mean()))
    few = np.unique(np.linspace(0, x.size - 1, _POINTS).astype(np.int64))
    return FittedCurve(
        source=source,
        knots=knots,
        values=values,
        model=knots if not source else _values_at(knots, x, known),
        points=np.stack([x[few], found[few]], 1),
        shape=_shape_of(values, rest),
    )


def _shape_of(values: np.ndarray, rest: float) -> str:
    """Whether a curve rises or falls everywhere, but for what it leaves."""
    steps = np.diff(values)
    if (steps >= -_FLAT * rest).all():
        return "rising curve"
    return "falling curve" if (steps <= _FLAT * rest).all() else "curve"


def _first_knots(x: np.ndarray) -> np.ndarray:
    """Ends and places between, at equal counts of elements; `x` in order."""
    if x.size < _BESIDE * _FIRST:
        return np.zeros(0)
    return np.unique(x[np.linspace(0, x.size - 1, _FIRST).astype(np.int64)])


def _split_knots(knots: np.ndarray, x: np.ndarray, left: np.ndarray) -> np.ndarray:
    """The knots with more in the middle of those stretches that leave most; as they are where no stretch can be parted."""
    which = np.clip(np.searchsorted(knots, x, "right") - 1, 0, knots.size - 2)
    sums = np.bincount(which, left, knots.size - 1)
    middle = (knots[:-1] + knots[1:]) / 2
    below, cut, above = (np.searchsorted(x, places) for places in (knots[:-1], middle, knots[1:]))
    parted = (np.minimum(cut - below, above - cut) >= _BESIDE) & (sums > 0)
    worst = [place for place in np.argsort(-sums) if parted[place]][:_SPLIT]
    return np.unique(np.concatenate([knots, middle[worst]]))


def _values_at(knots: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Values at the knots whose lines between are nearest to `y`, by least squares: a system of as many rows as knots."""
    which = np.clip(np.searchsorted(knots, x, "right") - 1, 0, knots.size - 2)
    part = (x - knots[which]) / (knots[which + 1] - knots[which])
    inner = np.arange(knots.size - 1)
    low, high, both = (np.bincount(which, of, inner.size) for of in ((1 - part) ** 2, part**2, part * (1 - part)))
    table, wanted = np.zeros((knots.size, knots.size)), np.zeros(knots.size)
    table[inner, inner] += low
    table[inner + 1, inner + 1] += high
    table[inner, inner + 1] = table[inner + 1, inner] = both
    wanted[:-1] += np.bincount(which, (1 - part) * y, inner.size)
    wanted[1:] += np.bincount(which, part * y, inner.size)
    return np.asarray(np.linalg.lstsq(table, wanted, rcond=1e-12)[0])


def _interpolate(x: np.ndarray, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Lines between the knots, the first and the last of which go on."""
    which = np.clip(np.searchsorted(knots, x, "right") - 1, 0, knots.size - 2)
    slopes = np.diff(values) / np.diff(knots)
    return np.asarray(values[which] + slopes[which] * (x - knots[which]))
