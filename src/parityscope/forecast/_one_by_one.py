"""The careful way of the compiled pass: blocks that hold infinities or NaN, element by element."""

from __future__ import annotations

import numpy as np

from parityscope.compiling import compiled

__all__ = ["first_with", "one_by_one", "range_one_by_one"]

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_MAGNITUDE_32 = np.uint32(0x7FFF_FFFF)


@compiled()
def first_with(r: np.ndarray, c: np.ndarray, wanted: np.int64) -> int:
    """The first place where |c-r| has the bits `wanted`; -1 where none has."""
    for i in range(r.shape[0]):
        e = np.float64(c[i]) - np.float64(r[i])
        if np.float64(e).view(np.int64) & _MAGNITUDE == wanted:
            return i
    return -1


@compiled()
def _disagreement(one: np.float32, other: np.float32) -> int:
    """0: both finite, or the same infinity, or both NaN; 1: `one` alone is not finite; 2: they differ in another way."""
    if np.isfinite(one):
        return 0 if np.isfinite(other) else 2
    if np.isfinite(other):
        return 1
    return 0 if one == other or (np.isnan(one) and np.isnan(other)) else 2


@compiled()
def one_by_one(
    r: np.ndarray,
    c: np.ndarray,
    f: np.ndarray,
    split: int,
    first: int,
    sums: np.ndarray,
    counts: np.ndarray,
    ends: np.ndarray,
) -> None:
    """What `_pass.measure_block` adds to its accumulators, whatever the elements are."""
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


@compiled()
def range_one_by_one(r: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> None:
    """The same of the range of r."""
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
