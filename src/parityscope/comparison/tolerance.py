"""How many elements of a tensor lie outside atol and rtol.

An element lies outside where |c - r| > atol + rtol |r|, r the reference: `numpy.allclose(c, r, rtol, atol)` with these
differences. Arithmetic is float64 (complex128; |.| is then the modulus), whatever the tensors' own types are. Integers
are subtracted exactly. Unequal booleans and strings are always outside. NaN on both sides and the same infinity on both
are equal; a value that is non-finite on one side only, or differently on both, is outside of every tolerance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.policy import OUTSIDE
from parityscope.comparison._layout import flat_row
from parityscope.comparison.measure import kind_of_pair
from parityscope.light_dataclasses import dataclass
from parityscope.records import Measurement

if TYPE_CHECKING:
    from parityscope.records import Tolerance

_BLOCK = 1 << 18  # elements: 2 MiB of float64 an array, of which five are alive at once


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideTolerance:
    """`count` of `elements` are outside; `excess` is the largest |c - r| - (atol + rtol |r|), at `index`.

    `excess` is negative where all are inside: then it is how far the nearest one is from the border. It is infinite
    where values differ that have no difference (NaN, Inf, booleans, strings), and minus infinity in an empty tensor.
    """

    count: int
    elements: int
    excess: float
    index: tuple[int, ...] | None


def count_outside(reference: np.ndarray, candidate: np.ndarray, tolerance: Tolerance) -> OutsideTolerance:
    """Counts the elements of `candidate` (any shape, the shape and kind of `reference`) outside of `tolerance`.

    Raises:
        ValueError: shapes or kinds differ.
    """
    kind = kind_of_pair(reference, candidate)
    r, c = flat_row(reference), flat_row(candidate)
    count, worst, at = 0, -math.inf, -1
    for start in range(0, r.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        if kind in ("float", "complex"):
            excess = _excess_of_floats(
                r[block], c[block], tolerance, np.complex128 if kind == "complex" else np.float64
            )
        elif kind == "exact" and r.dtype.kind != "b":
            excess = _excess_of_integers(r[block], c[block], tolerance)
        else:
            same = r[block] == c[block] if kind == "exact" else _are_same_text(r[block], c[block])
            excess = np.where(same, -tolerance.atol, math.inf)
        count += int((excess > 0).sum())
        top = int(np.argmax(excess))
        if excess[top] > worst:
            worst, at = float(excess[top]), start + top
    index = None if at < 0 else tuple(int(i) for i in np.unravel_index(at, reference.shape)) if reference.shape else ()
    return OutsideTolerance(count=count, elements=r.size, excess=worst, index=index)


def merge_outside(first: OutsideTolerance, second: OutsideTolerance) -> OutsideTolerance:
    """Over the elements of both; of equal worst elements the one of `first` is named."""
    worst = second if second.excess > first.excess else first
    return OutsideTolerance(
        count=first.count + second.count,
        elements=first.elements + second.elements,
        excess=worst.excess,
        index=worst.index,
    )


def measurements_of(outside: OutsideTolerance) -> tuple[Measurement, Measurement]:
    """`outside`, which a budget judges, and `outside_excess`, which says by how much."""
    count, index = outside.elements, outside.index
    return (
        Measurement(metric=OUTSIDE, value=outside.count, unit="elements", count=count, worst_index=index),
        Measurement(metric=f"{OUTSIDE}_excess", value=outside.excess, unit="absolute", count=count, worst_index=index),
    )


def _excess_of_floats(
    reference: np.ndarray, candidate: np.ndarray, tolerance: Tolerance, wide: type[np.float64 | np.complex128]
) -> np.ndarray:
    """|c - r| less what is allowed, float64; x - y > 0 exactly where x > y, because underflow is gradual."""
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and Inf are decided below; an overflowing error is outside
        r, c = reference.astype(wide), candidate.astype(wide)
        excess = np.abs(c - r) - (tolerance.atol + tolerance.rtol * np.abs(r))
    finite = np.isfinite(r) & np.isfinite(c)
    if finite.all():
        return np.asarray(excess)
    agreeing = (r == c) | (np.isnan(r) & np.isnan(c))
    return np.where(finite, excess, np.where(agreeing, -tolerance.atol, math.inf))


def _excess_of_integers(reference: np.ndarray, candidate: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """As `_excess_of_floats`; the difference is taken, and compared with what is allowed, in Python's integers."""
    excess = -(tolerance.atol + tolerance.rtol * np.abs(reference.astype(np.float64)))
    # numpy compares int64 with uint64 exactly, but has no comparison of all the small types with each other.
    r, c = (row if row.dtype.itemsize == 8 else row.astype(np.int64) for row in (reference, candidate))
    for at in np.flatnonzero(r != c):
        difference = abs(int(c[at]) - int(r[at]))
        allowed = -float(excess[at])
        # Of int and float Python compares the exact values; the float that is kept must not round to the other side.
        kept = float(difference) - allowed
        excess[at] = max(kept, math.ulp(0.0)) if difference > allowed else min(kept, 0.0)
    return np.asarray(excess)


def _are_same_text(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    return np.array([_as_text(r) == _as_text(c) for r, c in zip(reference, candidate, strict=True)], dtype=bool)


def _as_text(value: object) -> object:
    """ONNX strings are UTF-8 bytes; some runtimes give them back as bytes, others decoded."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
