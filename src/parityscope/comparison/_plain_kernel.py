"""What `_kernel` and `_replay_kernel` do, in numpy: ten times as slow, and there without numba being loaded.

Every count, extreme and histogram is the same; sums are added in another order, so that they differ by float64 rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison._bins import BINS_PER_OCTAVE, MANTISSA_BITS, OCTAVES, SKETCH_WIDTH, VALUE_BINS
from parityscope.comparison._layout import STRETCH
from parityscope.comparison.moments import add_moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_SHIFT = np.int64(52 - MANTISSA_BITS)
_FIRST_BIN = (1023 - OCTAVES) * BINS_PER_OCTAVE - 1


def measure_block(data: Sequence[np.ndarray], mask: int, at: tuple[int, int], tables: Sequence[np.ndarray]) -> None:
    """`_kernel.measure_block` with its arguments as `blocks` takes them; it needs no room to work in."""
    for part, place in _stretches(data, at):
        with np.errstate(all="ignore"):
            _measure_part(part, mask, place, *tables)


def replay_block(data: Sequence[np.ndarray], at: tuple[int, int], tables: Sequence[np.ndarray]) -> None:
    """`_replay_kernel.replay_block`, likewise."""
    for part, place in _stretches(data, at):
        with np.errstate(all="ignore"):
            _replay_part(part, place, *tables)


def _stretches(
    data: Sequence[np.ndarray], at: tuple[int, int]
) -> Iterator[tuple[tuple[np.ndarray, ...], tuple[int, int]]]:
    first, inner = at
    for start in range(0, data[0].shape[0], STRETCH):
        yield tuple(array[start : start + STRETCH] for array in data), (first + start, inner)


def _measure_part(
    data: tuple[np.ndarray, ...],
    mask: int,
    at: tuple[int, int],
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    sketch: np.ndarray,
    values: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
) -> None:
    first, inner = at
    reference_keys, candidate_keys = data[2:]
    r, c = (array.astype(np.float64) for array in data[:2])
    places = first + np.arange(r.size)
    channels = squares.shape[1]
    finite = np.isfinite(r) & np.isfinite(c)
    if not finite.all():
        found = _count_nonfinite(r, c, counts)
        if found.size:
            counts[6] = min(counts[6], places[found[0]])
            if channels:
                disagreeing += np.bincount((places[found] // inner) % channels, minlength=channels)
        r, c, places = r[finite], c[finite], places[finite]
        reference_keys, candidate_keys = reference_keys[finite], candidate_keys[finite]
    if not r.size:
        return
    e = c - r
    if channels:
        channel = (places // inner) % channels
        squares[0] += np.bincount(channel, e * e, channels)
        squares[1] += np.bincount(channel, r * r, channels)
    counts[4] += r.size
    add_moments(r, c, e, moments[2:])
    _add_distances(reference_keys, candidate_keys, mask, moments)
    _add_range(r.view(np.int64), extremes[0:2])
    _add_range(c.view(np.int64), extremes[6:8])
    bits = e.view(np.int64) & _MAGNITUDE
    largest = int(bits.argmax())
    if bits[largest] > extremes[4]:
        extremes[4:6] = bits[largest], places[largest]
    _add_relative(r, e, places, extremes[8:])
    counts[7] += np.count_nonzero(r == 0)
    _add_to_sketch(bits, sketch[0], extremes, counts)
    for side, table in ((r, values[0]), (c, values[1])):
        table[0] += np.bincount((side.view(np.int64) >> 52) & (VALUE_BINS - 1), minlength=VALUE_BINS)


def _count_nonfinite(r: np.ndarray, c: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Adds the elements that are not finite to `counts`; gives the positions of those that disagree."""
    in_reference, in_candidate = ~np.isfinite(r), ~np.isfinite(c)
    agreeing = in_reference & in_candidate & ((r == c) | (np.isnan(r) & np.isnan(c)))
    counts[0] += np.count_nonzero(in_reference & ~in_candidate)
    counts[1] += np.count_nonzero(in_candidate & ~in_reference)
    counts[2] += np.count_nonzero(in_reference & in_candidate & ~agreeing)
    counts[3] += np.count_nonzero(agreeing)
    return np.flatnonzero((in_reference | in_candidate) & ~agreeing)


def _add_distances(reference: np.ndarray, candidate: np.ndarray, mask: int, moments: np.ndarray) -> None:
    """Distances in ULPs of two sign-and-magnitude integers; both zeros are one point. Sum to moments[0], largest to [1]."""
    sides = []
    for keys in (reference, candidate):
        wide = keys.astype(np.int64)
        sign = wide >> 63
        sides.append(((wide & mask) ^ sign) - sign)
    distances = np.maximum(*sides).view(np.uint64) - np.minimum(*sides).view(np.uint64)
    moments[0] += distances.astype(np.float64).sum()
    moments[1] = max(moments[1], float(distances.max()))


def _add_range(bits: np.ndarray, extremes: np.ndarray) -> None:
    """Smallest and largest value, as integers that order like the values (negative ones mirrored)."""
    ordered = bits ^ ((bits >> 63) & _MAGNITUDE)
    extremes[0] = min(extremes[0], ordered.min())
    extremes[1] = max(extremes[1], ordered.max())


def _add_relative(reference: np.ndarray, error: np.ndarray, places: np.ndarray, extremes: np.ndarray) -> None:
    """The bits of the largest |e| / |r| of elements whose reference is not zero, and its place."""
    bits = np.where(reference == 0, 0.0, np.abs(error) / np.abs(reference)).view(np.int64)
    largest = int(bits.argmax())
    if bits[largest] > extremes[0]:
        extremes[0:2] = bits[largest], places[largest]


def _add_to_sketch(bits: np.ndarray, table: np.ndarray, extremes: np.ndarray, counts: np.ndarray) -> None:
    """Each error's bin; which bins were used to extremes[2:4], exact zeros to counts[5]."""
    at = np.clip((bits >> _SHIFT) - _FIRST_BIN, 0, SKETCH_WIDTH - 1)
    low, high = int(at.min()), int(at.max())
    table[low : high + 1] += np.bincount(at - low, minlength=high + 1 - low)
    extremes[2], extremes[3] = min(extremes[2], low), max(extremes[3], high)
    counts[5] += np.count_nonzero(bits == 0)


def _replay_part(
    data: tuple[np.ndarray, ...],
    at: tuple[int, int],
    moments: np.ndarray,
    counts: np.ndarray,
    extremes: np.ndarray,
    squares: np.ndarray,
    disagreeing: np.ndarray,
) -> None:
    first, inner = at
    r, c, f = (array.astype(np.float64) for array in data)
    places = first + np.arange(r.size)
    channels = squares.shape[1]
    _add_largest(r, c, places, extremes[3:])
    counts[6] += _disagreeing_positions(r, c).size
    introduced, inherited = _disagreeing_positions(f, c), _disagreeing_positions(r, f)
    for kind, base, found in ((1, f, introduced), (3, r, inherited)):
        beside = int(np.count_nonzero(~np.isfinite(base[found])))
        counts[kind : kind + 2] += found.size - beside, beside
    finite = np.isfinite(r) & np.isfinite(c) & np.isfinite(f)
    counts[0] += np.count_nonzero(finite)
    counts[5] += np.count_nonzero(~finite)
    kept = r[finite], c[finite], f[finite], places[finite]
    r, c, f = kept[:3]
    _add_largest(f, c, kept[3], extremes)
    if introduced.size:
        extremes[2] = min(extremes[2], places[introduced[0]])
    d, h, e = c - f, f - r, c - r
    moments += (d * d).sum(), (h * h).sum(), (d * h).sum(), (r * r).sum(), (e * e).sum()
    if channels:
        disagreeing += np.bincount((places[introduced] // inner) % channels, minlength=channels)
        at_channel = (kept[3] // inner) % channels
        squares[0] += np.bincount(at_channel, d * d, channels)
        squares[1] += np.bincount(at_channel, r * r, channels)


def _disagreeing_positions(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The positions of elements that are not finite on both sides, nor the same there."""
    agreeing = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.flatnonzero(~(np.isfinite(one) & np.isfinite(other)) & ~agreeing)


def _add_largest(one: np.ndarray, other: np.ndarray, places: np.ndarray, extremes: np.ndarray) -> None:
    """The bits of the largest difference of finite elements and its place, and the first place where others disagree."""
    finite = np.isfinite(one) & np.isfinite(other)
    bits = (other[finite] - one[finite]).view(np.int64) & _MAGNITUDE
    if bits.size and bits[largest := int(bits.argmax())] > extremes[0]:
        extremes[0:2] = bits[largest], places[finite][largest]
    found = _disagreeing_positions(one, other)
    if found.size:
        extremes[2] = min(extremes[2], places[found[0]])
