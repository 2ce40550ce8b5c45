"""The operators that measure a tensor inside a session, and the numbers that they leave.

`Observe` rounds as well; `Watch` measures alone. Both give back what the simulation stores and, as it came, the reference's
tensor: what reads either waits until it is measured, so that both sides go through the network together and their
tensors are in the cache. With a 3 behind their names they take f(c_in) as a third tensor. The kernels (`_observing`) are
compiled when the first session of a forecast is opened.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from parityscope.backends import _operators
from parityscope.backends._operators import Attributes, Operator
from parityscope.forecast._rows import Rows

__all__ = ["OBSERVE", "ROW_BYTES", "WATCH", "available", "collected", "empty"]

OBSERVE, WATCH = "Observe", "Watch"
# Of each part of a tensor (at most PARTS): sums, counts and ends of `_pass`, room to work, elements, rank, dimensions.
SUMS, COUNTS, ENDS, WORK, DIMENSIONS = 5, 8, 5, 7, 7
PARTS = 4
ALONE, PART = 1 << 14, 1 << 13  # elements, chosen: 64 KiB are measured as soon as another thread is woken
WIDTH = SUMS + COUNTS + ENDS + WORK + 2 + DIMENSIONS
ROW_BYTES = 8 * WIDTH * PARTS
_NOWHERE = 1 << 62
_HERE = Path(__file__).parent


@functools.cache
def available() -> bool:
    """Whether sessions can be given these operators; makes them known."""
    for name, inputs in ((OBSERVE, 2), (f"{OBSERVE}3", 3), (WATCH, 2), (f"{WATCH}3", 3)):
        _operators.also(functools.partial(_operator, name, inputs))
    return bool(_operators.library())


def empty(count: int) -> np.ndarray:
    """Accumulators of `count` tensors: float64, (count, PARTS, WIDTH), of which all but sums and room hold int64."""
    found = np.zeros((count, PARTS, WIDTH))
    _clear(found)
    return found


def collected(raw: np.ndarray) -> tuple[Rows, np.ndarray]:
    """What the operators left since the last time, which is forgotten: rows, and what they say of shapes.

    The latter are int64, (count, 2 + DIMENSIONS): elements (-1: the two sides have different ones), rank and dimensions.
    """
    held = raw.view(np.int64)
    end = SUMS + COUNTS + ENDS
    rows = Rows(
        sums=raw[:, 0, :SUMS].copy(),
        counts=held[:, 0, SUMS : SUMS + COUNTS].copy(),
        ends=held[:, 0, SUMS + COUNTS : end].copy(),
    )
    shapes = held[:, 0, end + WORK :].copy()
    large = np.flatnonzero(shapes[:, 0] >= ALONE)  # measured in several parts
    if large.size:
        rows.sums[large] = raw[large, :, :SUMS].sum(axis=1)
        rows.counts[large] = held[large, :, SUMS : SUMS + COUNTS].sum(axis=1)
        ends = held[large, :, SUMS + COUNTS : end]
        best = np.argmax(ends[:, :, 0], axis=1)  # of equals the first part's, which is the first element
        rows.ends[large, :2] = ends[np.arange(large.size), best, :2]
        rows.ends[large, 2] = ends[:, :, 2].min(axis=1)
        rows.ends[large, 3] = ends[:, :, 3].max(axis=1)
        rows.ends[large, 4] = ends[:, :, 4].min(axis=1)
        _clear(raw)
    else:
        _clear(raw[:, :1])
    return rows, shapes


def _clear(raw: np.ndarray) -> None:
    raw[:] = 0
    at = SUMS + COUNTS
    held = raw.view(np.int64)
    held[:, :, at + 1 : at + 3] = _NOWHERE
    held[:, :, at + 4] = _NOWHERE


@functools.cache
def _operator(name: str, inputs: int) -> Operator:
    module = "parityscope.forecast._observing"
    own = ("_one_by_one.py", "_pass.py", "_observing.py", "observing.py")
    files = (*_operators.SOURCES, *(_HERE / name for name in own))
    part = _operators.address_of(module, "part", result=False, files=files)

    def state(attributes: Attributes) -> np.ndarray:
        rounds = attributes.integer("rounds")
        rounding = _operators.rounding(attributes) if rounds else np.zeros(7, np.int64)
        rounding[1] = part
        rest = [attributes.integer("f"), rounds, attributes.integer("row")]
        return np.array([*rounding.tolist(), *rest], np.int64)

    compute = _operators.address_of(module, "compute", result=True, files=files)
    aliases = ((0, 1),) if name.startswith(OBSERVE) else ((1, 0), (0, 1))
    return Operator(name=name, inputs=inputs, outputs=2, aliases=aliases, compute=compute, state=state)
