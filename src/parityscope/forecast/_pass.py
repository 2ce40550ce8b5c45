"""The compiled loop of a forecast: all that it reports of a float32 tensor, in one read of three tensors.

`comparison` computes every metric of a pair; a forecast reports six numbers, of hundreds of tensors on every sample.
Here they come from one pass over blocks that stay in the L1 cache: sums in float64, the largest error and the range of
the reference by their bits, as in `comparison._kernel`, whose definitions of each number these are.

Only sums may be reassociated, and never with the "no NaN" or "no infinity" flags. A block that holds a non-finite value
is found by the bits of its exponents, or by its sums (no sum of squares of finite float32 values overflows float64),
and is done again one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

__all__ = ["COUNTS", "ENDS", "NOWHERE", "SUMS", "measure_stretch"]

F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 2048  # three blocks of 8 KiB of float32: they stay in an L1 cache of 32 KiB
NOWHERE = 1 << 62  # above every flat index
# Where each number is, see `measure_stretch`.
SUMS, COUNTS, ENDS = 5, 8, 5
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_NONFINITE = np.int64(0x7FF0_0000_0000_0000)  # all bits of the exponent set
_MAGNITUDE_32 = np.uint32(0x7FFF_FFFF)
_NONFINITE_32 = np.uint32(0x7F80_0000)
_ONE_32 = np.uint32(1)


def _compiled(*, reassociate: bool = False, outer: bool = False) -> Callable[[F], F]:
    """Compiles with numba; `reassociate` lets sums be taken in any order, `outer` keeps the machine code on disk."""
    fastmath: set[str] = {"reassoc", "contract", "nsz"} if reassociate else set()

    def decorate(function: F) -> F:
        try:
            return cast("F", njit(nogil=True, fastmath=fastmath, cache=outer)(function))
        except RuntimeError:  # numba found no directory that it may write its cache to
            return cast("F", njit(nogil=True, fastmath=fastmath)(function))

    return decorate


@_compiled(reassociate=True)
def _pair_sums(r: np.ndarray, c: np.ndarray, work: np.ndarray) -> np.int64:
    """Sums of (c-r)^2 and r^2 to work[0:2]; gives the bits of the largest |c-r|."""
    e2 = r2 = 0.0
    largest = np.int64(0)
    for i in range(r.shape[0]):
        wide = np.float64(r[i])
        e = np.float64(c[i]) - wide
        e2 += e * e
        r2 += wide * wide
        largest = max(largest, np.float64(e).view(np.int64) & _MAGNITUDE)
    work[0] = e2
    work[1] = r2
    return largest


@_compiled(reassociate=True)
def _split_sums(r: np.ndarray, c: np.ndarray, f: np.ndarray, work: np.ndarray) -> None:
    """Sums of (c-f)^2 and (f-r)^2 to work[2:4]."""
    d2 = h2 = 0.0
    for i in range(r.shape[0]):
        wide = np.float64(f[i])
        d = np.float64(c[i]) - wide
        h = wide - np.float64(r[i])
        d2 += d * d
        h2 += h * h
    work[2] = d2
    work[3] = h2


@_compiled()
def _range(bits: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> None:
    """Largest and smallest magnitude as bits to ends[3:5], zeros to counts[6]; every element is finite."""
    largest = np.uint32(0)
    smallest = np.uint32(0xFFFF_FFFF)
    zeros = np.uint32(0)
    for i in range(bits.shape[0]):
        magnitude = bits[i] & _MAGNITUDE_32
        largest = max(largest, magnitude)
        # One less: zeros wrap round to the largest integer, which leaves them out of the minimum.
        smallest = min(smallest, np.uint32(magnitude - _ONE_32))
        zeros += np.uint32(magnitude == 0)
    ends[3] = max(ends[3], np.int64(largest))
    if smallest < _NONFINITE_32:
        ends[4] = min(ends[4], np.int64(smallest) + 1)
    counts[6] += np.int64(zeros)


@_compiled()
def _first_with(r: np.ndarray, c: np.ndarray, wanted: np.int64) -> int:
    for i in range(r.shape[0]):
        e = np.float64(c[i]) - np.float64(r[i])
        if np.float64(e).view(np.int64) & _MAGNITUDE == wanted:
            return i
    return -1


@_compiled()
def _disagreement(one: np.float32, other: np.float32) -> int:
    """0: both finite, or the same infinity, or both NaN; 1: `one` alone is not finite; 2: they differ in another way."""
    if np.isfinite(one):
        return 0 if np.isfinite(other) else 2
    if np.isfinite(other):
        return 1
    return 0 if one == other or (np.isnan(one) and np.isnan(other)) else 2


@_compiled()
def _one_by_one(
    r: np.ndarray,
    c: np.ndarray,
    f: np.ndarray,
    split: int,
    first: int,
    sums: np.ndarray,
    counts: np.ndarray,
    ends: np.ndarray,
) -> None:
    for i in range(r.shape[0]):
        at = first + i
        whole = np.isfinite(r[i]) and np.isfinite(c[i])
        if whole:
            e = np.float64(c[i]) - np.float64(r[i])
            sums[0] += e * e
            sums[1] += np.float64(r[i]) * np.float64(r[i])
            bits = np.float64(e).view(np.int64) & _MAGNITUDE
            if bits > ends[0]:
                ends[0] = bits
                ends[1] = at
        found = _disagreement(c[i], r[i])
        if found:
            counts[found - 1] += 1
            ends[2] = min(ends[2], at)
        if split:
            found = _disagreement(c[i], f[i])
            if found:
                counts[1 + found] += 1
            found = _disagreement(f[i], r[i])
            if found:
                counts[3 + found] += 1
            if whole and np.isfinite(f[i]):
                d = np.float64(c[i]) - np.float64(f[i])
                h = np.float64(f[i]) - np.float64(r[i])
                sums[2] += d * d
                sums[3] += h * h
                sums[4] += np.float64(r[i]) * np.float64(r[i])


@_compiled()
def _range_one_by_one(r: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> None:
    for i in range(r.shape[0]):
        if not np.isfinite(r[i]):
            counts[7] += 1
        else:
            magnitude = np.int64(np.float32(r[i]).view(np.uint32) & _MAGNITUDE_32)
            if magnitude == 0:
                counts[6] += 1
            else:
                ends[3] = max(ends[3], magnitude)
                ends[4] = min(ends[4], magnitude)


@_compiled(outer=True)
def measure_stretch(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    split: int,
    ranged: int,
    first: int,
    sums: np.ndarray,
    counts: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Adds a contiguous stretch of a tensor (r, c and f(c_in)) to its accumulators.

    Args:
        reference: float32, (n,).
        candidate: float32, (n,).
        replayed: float32, (n,); any if `split` is 0.
        split: 1 if introduced and inherited error are wanted, else 0.
        ranged: 1 if the reference's range is wanted, else 0.
        first: flat index of element 0 in the whole tensor.
        sums: float64, (SUMS,): (c-r)^2 and r^2 where both are finite; (c-f)^2, (f-r)^2 and r^2 where all three are.
        counts: int64, (COUNTS,): c and r, c and f, f and r: non-finite in the first of both alone, and different in
            another way that involves a non-finite value; then zeros and non-finite elements of r.
        ends: int64, (ENDS,): bits of the largest |c-r| and its flat index; lowest flat index where c and r disagree;
            bits of the largest and of the smallest non-zero magnitude of r.
    """
    work = np.zeros(4, np.float64)
    for start in range(0, reference.shape[0], BLOCK):
        stop = min(start + BLOCK, reference.shape[0])
        r = reference[start:stop]
        c = candidate[start:stop]
        f = replayed[start:stop] if split else r
        largest = _pair_sums(r, c, work)
        work[2] = work[3] = 0.0
        if split:
            _split_sums(r, c, f, work)
        if largest < _NONFINITE and np.isfinite(work[2] + work[3]):
            sums[0] += work[0]
            sums[1] += work[1]
            if split:
                sums[2] += work[2]
                sums[3] += work[3]
                sums[4] += work[1]
            if largest > ends[0]:
                ends[0] = largest
                ends[1] = first + start + _first_with(r, c, largest)
        else:
            _one_by_one(r, c, f, split, first + start, sums, counts, ends)
        if ranged:
            if np.isfinite(work[1]):
                _range(r.view(np.uint32), ends, counts)
            else:
                _range_one_by_one(r, ends, counts)
