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

__all__ = ["CHAIN", "OBSERVE", "ROW_BYTES", "THIN", "WATCH", "available", "collected", "empty"]

OBSERVE, WATCH, CHAIN, THIN = "Observe", "Watch", "Chain", "Thin"
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
    _operators.also(_chain)
    _operators.also(_thin)
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
    part, compute = _kernel("_observing")

    def state(attributes: Attributes) -> np.ndarray:
        rest = [attributes.integer(name) for name in ("f", "rounds", "row")]
        return np.array([*_rounding(attributes, part), *rest], np.int64)

    aliases = ((0, 1),) if name.startswith(OBSERVE) else ((1, 0), (0, 1))
    return Operator(name=name, inputs=inputs, outputs=2, aliases=aliases, compute=compute, state=state)


@functools.cache
def _chain() -> Operator:
    part, compute = _kernel("_chained", "_pointwise_kernels.py", "programs.py")

    def state(attributes: Attributes) -> np.ndarray:
        return np.array([*_rounding(attributes, part), attributes.integer("program")], np.int64)

    return Operator(name=CHAIN, inputs=1, variadic=True, compute=compute, state=state)


@functools.cache
def _thin() -> Operator:
    part, compute = _kernel("_thinned")

    def state(attributes: Attributes) -> np.ndarray:
        rest = [attributes.integer(name) for name in ("rounds", "row", "step", "axes")]
        return np.array([*_rounding(attributes, part), *rest], np.int64)

    return Operator(name=THIN, inputs=3, compute=compute, state=state)


def _kernel(name: str, *more: str) -> tuple[int, int]:
    """The addresses of `part` and `compute` of a module."""
    own = {"_one_by_one.py", "_pass.py", "_observing.py", "observing.py", f"{name}.py", *more}
    files = (*_operators.SOURCES, *(_HERE / each for each in sorted(own)))
    module = f"parityscope.forecast.{name}"
    return (
        _operators.address_of(module, "part", result=False, files=files),
        _operators.address_of(module, "compute", result=True, files=files),
    )


def _rounding(attributes: Attributes, part: int) -> list[int]:
    """The first numbers of a state: as for `Round`, nothing if a node rounds nothing."""
    found = _operators.rounding(attributes) if attributes.integer("rounds") else np.zeros(7, np.int64)
    found[1] = part
    return [int(number) for number in found]
