"""The compiled loop of a forecast: all that it reports of a float32 tensor, in one read of three tensors.

`comparison` computes every metric of a pair; a forecast reports six numbers, of hundreds of tensors on every sample.
Here they come from one pass over blocks that stay in the L1 cache: sums in float64, the largest error and the range of
the reference by their bits, as in `comparison._kernel`, whose definitions of each number these are.

Only sums may be reassociated, and never with the "no NaN" or "no infinity" flags. A block that holds a non-finite value
is found by the bits of its exponents, or by its sums (no sum of squares of finite float32 values overflows float64),
and is done again one by one.
"""

from __future__ import annotations

import numpy as np

from parityscope.compiling import compiled
from parityscope.forecast._one_by_one import first_with, one_by_one, range_one_by_one

__all__ = [
    "COUNTS",
    "ENDS",
    "NOWHERE",
    "SUMS",
    "WORK",
    "measure_block",
    "measure_stretch",
    "settle_block",
]

BLOCK = 2048  # three blocks of 8 KiB of float32: they stay in an L1 cache of 32 KiB
NOWHERE = 1 << 62  # above every flat index
# Where each number is, see `measure_stretch`.
SUMS, COUNTS, ENDS, WORK = 5, 8, 5, 7
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_NONFINITE = np.int64(0x7FF0_0000_0000_0000)  # all bits of the exponent set
_MAGNITUDE_32 = np.uint32(0x7FFF_FFFF)
_NONFINITE_32 = np.uint32(0x7F80_0000)
_ONE_32, _ALL_32 = np.uint32(1), np.uint32(0xFFFF_FFFF)


@compiled(reassociate=True)
def _pair_sums(r: np.ndarray, c: np.ndarray, work: np.ndarray) -> np.int64:
    """Sums of (c-r)^2 and r^2 to work[0:2], r's range to work[4:7]; gives the bits of the largest |c-r|.

    The range: bits of the largest magnitude, those of the smallest but zero less one, and how many zeros there are.
    """
    e2 = r2 = 0.0
    worst = np.int64(0)
    largest, smallest, zeros = np.uint32(0), _ALL_32, np.uint32(0)
    for i in range(r.shape[0]):
        wide = np.float64(r[i])
        e = np.float64(c[i]) - wide
        e2 += e * e
        r2 += wide * wide
        worst = max(worst, np.float64(e).view(np.int64) & _MAGNITUDE)
        # All in 32 bits, or half as many elements would fit into a register.
        magnitude = np.uint32(np.float32(r[i]).view(np.uint32) & _MAGNITUDE_32)
        largest = np.uint32(max(largest, magnitude))
        # One less: zeros wrap round to the largest integer, which leaves them out of the minimum.
        smallest = np.uint32(min(smallest, np.uint32(magnitude - _ONE_32)))
        zeros = np.uint32(zeros + np.uint32(magnitude == 0))
    work[0], work[1] = e2, r2
    work[4], work[5], work[6] = largest, smallest, zeros
    return worst


@compiled(reassociate=True)
def _all_sums(r: np.ndarray, c: np.ndarray, f: np.ndarray, work: np.ndarray) -> np.int64:
    """`_pair_sums`, and sums of (c-f)^2 and (f-r)^2 to work[2:4]."""
    e2 = r2 = d2 = h2 = 0.0
    worst = np.int64(0)
    largest, smallest, zeros = np.uint32(0), _ALL_32, np.uint32(0)
    for i in range(r.shape[0]):
        wide, candidate, replayed = np.float64(r[i]), np.float64(c[i]), np.float64(f[i])
        e, d, h = candidate - wide, candidate - replayed, replayed - wide
        e2 += e * e
        r2 += wide * wide
        d2 += d * d
        h2 += h * h
        worst = max(worst, np.float64(e).view(np.int64) & _MAGNITUDE)
        magnitude = np.uint32(np.float32(r[i]).view(np.uint32) & _MAGNITUDE_32)
        largest = np.uint32(max(largest, magnitude))
        smallest = np.uint32(min(smallest, np.uint32(magnitude - _ONE_32)))
        zeros = np.uint32(zeros + np.uint32(magnitude == 0))
    work[0], work[1], work[2], work[3] = e2, r2, d2, h2
    work[4], work[5], work[6] = largest, smallest, zeros
    return worst


@compiled()
def _range(ends: np.ndarray, counts: np.ndarray, work: np.ndarray) -> None:
    """Adds the range in work[4:7] to ends[3:5] and counts[6]; every element is finite."""
    ends[3] = max(ends[3], np.int64(work[4]))
    if work[5] < _NONFINITE_32:
        ends[4] = min(ends[4], np.int64(work[5]) + 1)
    counts[6] += np.int64(work[6])


@compiled()
def measure_block(
    r: np.ndarray,
    c: np.ndarray,
    f: np.ndarray,
    split: int,
    ranged: int,
    first: int,
    sums: np.ndarray,
    counts: np.ndarray,
    ends: np.ndarray,
    work: np.ndarray,
) -> None:
    """`measure_stretch` for at most `BLOCK` elements, of which `work` (float64, (WORK,)) is used up."""
    work[2] = work[3] = 0.0
    largest = _all_sums(r, c, f, work) if split else _pair_sums(r, c, work)
    settle_block(r, c, f, split, ranged, first, largest, sums, counts, ends, work)


@compiled()
def settle_block(
    r: np.ndarray,
    c: np.ndarray,
    f: np.ndarray,
    split: int,
    ranged: int,
    first: int,
    largest: np.int64,
    sums: np.ndarray,
    counts: np.ndarray,
    ends: np.ndarray,
    work: np.ndarray,
) -> None:
    """Adds the sums of a block in `work` to the accumulators; one that holds a non-finite value is done one by one."""
    if largest < _NONFINITE and np.isfinite(work[2] + work[3]):
        sums[0] += work[0]
        sums[1] += work[1]
        if split:
            sums[2] += work[2]
            sums[3] += work[3]
            sums[4] += work[1]
        if largest > ends[0]:
            ends[0] = largest
            ends[1] = first + first_with(r, c, largest)
    else:
        one_by_one(r, c, f, split, first, sums, counts, ends)
    if ranged:
        if np.isfinite(work[1]):
            _range(ends, counts, work)
        else:
            range_one_by_one(r, ends, counts)


@compiled(kept=True)
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
    work = np.zeros(WORK, np.float64)
    for start in range(0, reference.shape[0], BLOCK):
        stop = min(start + BLOCK, reference.shape[0])
        r = reference[start:stop]
        c = candidate[start:stop]
        f = replayed[start:stop] if split else r
        measure_block(r, c, f, split, ranged, first + start, sums, counts, ends, work)
