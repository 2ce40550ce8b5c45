"""The compiled loop that reads two tensors.

Everything is accumulated in float64 while a block lies in the L1 cache.

A block of `BLOCK` elements is widened to float64 once; small loops then pass over it, each simple enough to become
vector instructions. That is faster than one loop that does all, because a single histogram update in a loop keeps the
sums from being vectorized (measured in bench/metric_pass.py).

Two kinds of loops stand apart. `_widen_block`, `_subtract_blocks` and the replay's `_split` compile to strict IEEE 754
arithmetic. Only
sums may be reassociated, and never with the "no NaN" or "no infinity" flags. Non-finite values are found by the bits of their
exponent, which no floating-point flag can optimise away, and are taken out of a block before it is summed.

Nothing is allocated here: what a block needs is handed in (`blocks`).
"""

from __future__ import annotations

import numpy as np

from parityscope.comparison._bins import (
    BINS_PER_OCTAVE,
    BLOCK,
    MANTISSA_BITS,
    OCTAVES,
    SKETCH_WIDTH,
    VALUE_BINS,
)
from parityscope.comparison._loops import (
    MAGNITUDE,
    NONFINITE,
    add_channels,
    add_scattered,
    agree_nonfinite,
    first_with,
    is_nonfinite,
    largest_bits,
)
from parityscope.comparison.moments import loop_over_moments
from parityscope.compiling import compile_loop

_SHIFT = 52 - MANTISSA_BITS
_FIRST_BIN = (1023 - OCTAVES) * BINS_PER_OCTAVE - 1
_add_sums = compile_loop(reassociate=True)(loop_over_moments)


@compile_loop()
def _widen_block(source: np.ndarray, wide: np.ndarray) -> None:
    for i in range(source.shape[0]):
        wide[i] = source[i]


@compile_loop()
def _subtract_blocks(candidate: np.ndarray, reference: np.ndarray, error: np.ndarray) -> None:
    for i in range(error.shape[0]):
        error[i] = candidate[i] - reference[i]


@compile_loop()
def _add_range(bits: np.ndarray, extremes: np.ndarray) -> None:
    """Smallest and largest value, as integers that order like the values (negative ones mirrored)."""
    low = extremes[0]
    high = extremes[1]
    for i in range(bits.shape[0]):
        key = bits[i]
        key = key ^ ((key >> 63) & MAGNITUDE)
        low = min(low, key)
        high = max(high, key)
    extremes[0] = low
    extremes[1] = high


@compile_loop()
def _relative_bits(r: float, e: float) -> np.int64:
    """The bits of |e| / |r|; 0 where r is zero."""
    return np.int64(0) if r == 0 else np.float64(abs(e) / abs(r)).view(np.int64)


@compile_loop()
def _largest_relative(reference: np.ndarray, error: np.ndarray, counts: np.ndarray) -> np.int64:
    """The bits of the largest |e| / |r| of elements whose reference is not zero; those whose is, to counts[7]."""
    largest = np.int64(0)
    zeros = np.int64(0)
    for i in range(error.shape[0]):
        zeros += np.int64(reference[i] == 0)
        largest = max(largest, _relative_bits(reference[i], error[i]))
    counts[7] += zeros
    return largest


@compile_loop()
def _first_relative(reference: np.ndarray, error: np.ndarray, wanted: np.int64) -> int:
    """The first index at which `_relative_bits` are `wanted`; -1 where none are."""
    for i in range(error.shape[0]):
        if _relative_bits(reference[i], error[i]) == wanted:
            return i
    return -1


@compile_loop(reassociate=True)
def _add_ulps(reference: np.ndarray, candidate: np.ndarray, mask: int, moments: np.ndarray) -> None:
    """Distances of two sign-and-magnitude integers; both zeros are one point. Sum to moments[0], largest to [1]."""
    total = 0.0
    largest = np.uint64(0)
    for i in range(reference.shape[0]):
        r = np.int64(reference[i])
        c = np.int64(candidate[i])
        sign = r >> 63
        r = ((r & mask) ^ sign) - sign
        sign = c >> 63
        c = ((c & mask) ^ sign) - sign
        distance = np.uint64(max(r, c)) - np.uint64(min(r, c))
        total += np.float64(distance)
        largest = max(largest, distance)
    moments[0] += total
    moments[1] = max(moments[1], np.float64(largest))


@compile_loop()
def _sketch_bins(bits: np.ndarray, bins: np.ndarray, extremes: np.ndarray, counts: np.ndarray) -> None:
    """Each error's bin; which bins were used to extremes[2:4], exact zeros to counts[5]."""
    low = np.int64(SKETCH_WIDTH)
    high = np.int64(0)
    zeros = np.int64(0)
    for i in range(bits.shape[0]):
        magnitude = bits[i] & MAGNITUDE
        zeros += np.int64(magnitude == 0)
        at = min(max((magnitude >> _SHIFT) - _FIRST_BIN, 0), SKETCH_WIDTH - 1)
        low = min(low, at)
        high = max(high, at)
        bins[i] = at
    extremes[2] = min(extremes[2], low)
    extremes[3] = max(extremes[3], high)
    counts[5] += zeros


@compile_loop()
def _value_bins(bits: np.ndarray, bins: np.ndarray) -> None:
    for i in range(bits.shape[0]):
        bins[i] = (bits[i] >> 52) & (VALUE_BINS - 1)


@compile_loop()
def _count_bins(bins: np.ndarray, histogram: np.ndarray) -> None:
    whole = bins.shape[0] & ~3
    for i in range(0, whole, 4):
        histogram[0, bins[i]] += 1
        histogram[1, bins[i + 1]] += 1
        histogram[2, bins[i + 2]] += 1
        histogram[3, bins[i + 3]] += 1
    for i in range(whole, bins.shape[0]):
        histogram[0, bins[i]] += 1


@compile_loop(kept=True)
def measure_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    reference_keys: np.ndarray,
    candidate_keys: np.ndarray,
    mask: int,
    first: int,
    inner: int,
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    sketch: np.ndarray,
    values: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
    wide: np.ndarray,
    kept: np.ndarray,
    bins: np.ndarray,
) -> None:
    """Adds the pairs of a contiguous stretch of two tensors to the accumulators.

    Args:
        reference: float32 or float64, (n,).
        candidate: same dtype, (n,).
        reference_keys: int32 or int64, (n,): the reference rounded to the candidate's dtype, as sign and magnitude.
        candidate_keys: same dtype, (n,): the candidate's bits, with the sign in the highest bit.
        mask: the magnitude bits of a key.
        first: flat index of element 0 in the whole tensor.
        inner: elements between one channel and the next.
        moments: float64, (2 + SUMS,): sum of the ULPs, the largest ULP, and the sums of `moments`.
        counts: int64, (8,): non-finite in the reference only, the candidate only, both but different, agreeing;
            finite pairs; exact zeros among the errors; lowest flat index that disagrees; zeros of the reference.
        extremes: int64, (10,): range of the reference (ordered keys), lowest and highest sketch bin used, bits of the
            largest |e| and its flat index, range of the candidate, bits of the largest |e| / |r| and its flat index.
        sketch: int64, (LANES, SKETCH_WIDTH).
        values: int64, (2, LANES, VALUE_BINS): reference, candidate.
        squares: float64, (2, channels); no channels: nothing is kept by channel.
        disagreeing: int64, (channels,): elements that are non-finite on one side only, or differently.
        wide: float64, (3, BLOCK): room to work in, as the two that follow.
        kept: int64, (3, BLOCK).
        bins: uint32, (BLOCK,).
    """
    wide_reference, wide_candidate, wide_error = wide[0], wide[1], wide[2]
    kept_reference, kept_candidate, kept_at = kept[0], kept[1], kept[2]
    channels = squares.shape[1]
    for start in range(0, reference.shape[0], BLOCK):
        m = min(BLOCK, reference.shape[0] - start)
        r = wide_reference[:m]
        c = wide_candidate[:m]
        e = wide_error[:m]
        _widen_block(reference[start : start + m], r)
        _widen_block(candidate[start : start + m], c)
        _subtract_blocks(c, r, e)
        largest = largest_bits(e.view(np.int64))
        intact = largest < NONFINITE
        if intact:
            _add_ulps(reference_keys[start : start + m], candidate_keys[start : start + m], mask, moments)
            if channels:
                add_channels(e, r, first + start, inner, squares)
        else:
            whole = m
            m = 0
            for i in range(whole):
                r_bits = np.float64(r[i]).view(np.int64)
                c_bits = np.float64(c[i]).view(np.int64)
                r_bad = is_nonfinite(r_bits)
                c_bad = is_nonfinite(c_bits)
                at = first + start + i
                if not r_bad and not c_bad:
                    r[m] = r[i]
                    c[m] = c[i]
                    e[m] = e[i]
                    kept_reference[m] = reference_keys[start + i]
                    kept_candidate[m] = candidate_keys[start + i]
                    kept_at[m] = at
                    if channels:
                        add_scattered(e[m], r[m], (at // inner) % channels, squares)
                    m += 1
                elif r_bad and c_bad and agree_nonfinite(r_bits, c_bits):
                    counts[3] += 1
                else:
                    counts[2 if r_bad and c_bad else (0 if r_bad else 1)] += 1
                    counts[6] = min(counts[6], at)
                    if channels:
                        disagreeing[(at // inner) % channels] += 1
            r = r[:m]
            c = c[:m]
            e = e[:m]
            largest = largest_bits(e.view(np.int64))
            _add_ulps(kept_reference[:m], kept_candidate[:m], mask, moments)
        counts[4] += m
        bits = e.view(np.int64)
        _add_sums(r, c, e, moments[2:])
        if largest > extremes[4]:
            extremes[4] = largest
            found = first_with(bits, largest)
            extremes[5] = first + start + found if intact else kept_at[found]
        relative = _largest_relative(r, e, counts)
        if relative > extremes[8]:
            extremes[8] = relative
            found = _first_relative(r, e, relative)
            extremes[9] = first + start + found if intact else kept_at[found]
        _add_range(r.view(np.int64), extremes[0:2])
        _add_range(c.view(np.int64), extremes[6:8])
        _sketch_bins(bits, bins[:m], extremes, counts)
        _count_bins(bins[:m], sketch)
        _value_bins(r.view(np.int64), bins[:m])
        _count_bins(bins[:m], values[0])
        _value_bins(c.view(np.int64), bins[:m])
        _count_bins(bins[:m], values[1])
