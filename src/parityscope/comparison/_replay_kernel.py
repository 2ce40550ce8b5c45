"""The compiled loop of the severed replay, which reads three tensors; its rules are those of `_kernel`."""

from __future__ import annotations

import numpy as np

from parityscope.comparison._bins import BLOCK
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
from parityscope.compiling import compile_loop


@compile_loop()
def _split_errors(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    wide_reference: np.ndarray,
    introduced: np.ndarray,
    inherited: np.ndarray,
) -> None:
    for i in range(introduced.shape[0]):
        r = np.float64(reference[i])
        f = np.float64(replayed[i])
        wide_reference[i] = r
        introduced[i] = np.float64(candidate[i]) - f
        inherited[i] = f - r


@compile_loop(reassociate=True)
def _add_whole_error(candidate: np.ndarray, reference: np.ndarray, moments: np.ndarray) -> np.int64:
    """Adds the sum of (c-r)^2; gives the bits of the largest |c-r|."""
    e2 = 0.0
    largest = np.int64(0)
    for i in range(reference.shape[0]):
        e = np.float64(candidate[i]) - reference[i]
        e2 += e * e
        largest = max(largest, np.float64(e).view(np.int64) & MAGNITUDE)
    moments[4] += e2
    return largest


@compile_loop()
def _first_whole(candidate: np.ndarray, reference: np.ndarray, wanted: np.int64) -> int:
    """The first index at which the bits of |c-r| are `wanted`."""
    for i in range(reference.shape[0]):
        if np.float64(np.float64(candidate[i]) - reference[i]).view(np.int64) & MAGNITUDE == wanted:
            return i
    return -1


@compile_loop(reassociate=True)
def _replay_sums(introduced: np.ndarray, inherited: np.ndarray, reference: np.ndarray, moments: np.ndarray) -> None:
    d2 = h2 = dh = r2 = 0.0
    for i in range(introduced.shape[0]):
        d = introduced[i]
        h = inherited[i]
        d2 += d * d
        h2 += h * h
        dh += d * h
        r2 += reference[i] * reference[i]
    moments[0] += d2
    moments[1] += h2
    moments[2] += dh
    moments[3] += r2


@compile_loop(kept=True)
def replay_block(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    first: int,
    inner: int,
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
    wide: np.ndarray,
    kept: np.ndarray,
) -> None:
    """Adds a contiguous stretch of three tensors (r, c and f(c_in)) to the accumulators of the severed replay.

    Args:
        reference: float32 or float64, (n,).
        candidate: same dtype, (n,).
        replayed: same dtype, (n,).
        first: flat index of element 0 in the whole tensor.
        inner: elements between one channel and the next.
        moments: float64, (5,): sums of (c-f)^2, (f-r)^2, (c-f)(f-r), r^2, (c-r)^2 where all three are finite.
        counts: int64, (7,): elements summed; non-finite in c where f is finite; c and f differ otherwise in a
            non-finite value; non-finite in f where r is finite; f and r differ otherwise; elements left out; c and r
            differ in a non-finite value.
        extremes: int64, (6,): bits of the largest |c-f| and its flat index; lowest flat index where c and f disagree; then the
            same of c and r.
        squares: float64, (2, channels): sums of (c-f)^2 and of r^2.
        disagreeing: int64, (channels,): elements where c and f disagree in a non-finite value.
        wide: float64, (3, BLOCK): room to work in, as the one that follows.
        kept: int64, (3, BLOCK).
    """
    wide_reference, wide_inherited, wide_introduced = wide[0], wide[1], wide[2]
    kept_at = kept[0]
    channels = squares.shape[1]
    for start in range(0, reference.shape[0], BLOCK):
        m = min(BLOCK, reference.shape[0] - start)
        r = wide_reference[:m]
        h = wide_inherited[:m]
        d = wide_introduced[:m]
        _split_errors(reference[start : start + m], candidate[start : start + m], replayed[start : start + m], r, d, h)
        largest = largest_bits(d.view(np.int64))
        intact = largest < NONFINITE and largest_bits(h.view(np.int64)) < NONFINITE
        if intact:
            if channels:
                add_channels(d, r, first + start, inner, squares)
            whole_error = _add_whole_error(candidate[start : start + m], r, moments)
            if whole_error > extremes[3]:
                extremes[3] = whole_error
                extremes[4] = first + start + _first_whole(candidate[start : start + m], r, whole_error)
        else:
            whole = m
            m = 0
            for i in range(whole):
                at = first + start + i
                r_bits = np.float64(r[i]).view(np.int64)
                c_bits = np.float64(candidate[start + i]).view(np.int64)
                f_bits = np.float64(replayed[start + i]).view(np.int64)
                r_bad = is_nonfinite(r_bits)
                c_bad = is_nonfinite(c_bits)
                f_bad = is_nonfinite(f_bits)
                if not r_bad and not c_bad:
                    error = np.float64(candidate[start + i]) - np.float64(reference[start + i])
                    moments[4] += 0.0 if f_bad else error * error
                    error_bits = np.float64(error).view(np.int64) & MAGNITUDE
                    if error_bits > extremes[3]:
                        extremes[3] = error_bits
                        extremes[4] = at
                if not r_bad and not c_bad and not f_bad:
                    r[m] = r[i]
                    h[m] = h[i]
                    d[m] = d[i]
                    kept_at[m] = at
                    if channels:
                        add_scattered(d[m], r[m], (at // inner) % channels, squares)
                    m += 1
                    continue
                counts[5] += 1
                if (c_bad or f_bad) and not (c_bad and f_bad and agree_nonfinite(c_bits, f_bits)):
                    counts[2 if f_bad else 1] += 1
                    extremes[2] = min(extremes[2], at)
                    if channels:
                        disagreeing[(at // inner) % channels] += 1
                if (f_bad or r_bad) and not (f_bad and r_bad and agree_nonfinite(f_bits, r_bits)):
                    counts[4 if r_bad else 3] += 1
                if (c_bad or r_bad) and not (c_bad and r_bad and agree_nonfinite(c_bits, r_bits)):
                    counts[6] += 1
                    extremes[5] = min(extremes[5], at)
            r = r[:m]
            d = d[:m]
            h = h[:m]
            largest = largest_bits(d.view(np.int64))
        counts[0] += m
        _replay_sums(d, h, r, moments)
        if largest > extremes[0]:
            extremes[0] = largest
            found = first_with(d.view(np.int64), largest)
            extremes[1] = first + start + found if intact else kept_at[found]
