"""Runs the metric kernel over a stretch of two flat float tensors and reads its accumulators.

The kernel's histograms (655 KB for a sketch with its lanes) are kept between calls and cleared where they were used:
fresh ones for each of a model's tensors would cost more than most of these tensors do.

Floating-point values as integers in which neighbours differ by one: the way ULP distances are counted.

The bits of a format with sign and magnitude order like its values (IEEE 754-2019, 5.10). Here they are moved to the top
of an int32 or int64, so that one kernel serves every format; `unit` undoes that. The reference is first rounded to the
candidate's format (to nearest, ties to even): what the best possible candidate would hold is zero ULP away. A reference
beyond the format's range rounds to its infinity; in formats without one it lies one step behind the largest value.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison._bins import (
    BINS_PER_OCTAVE,
    LANES,
    NOWHERE,
    OCTAVES,
    SKETCH_WIDTH,
    VALUE_BINS,
    VALUE_OFFSET,
)
from parityscope.comparison._channels import Channels
from parityscope.comparison._histogram import Histogram, Sketch
from parityscope.comparison._layout import Layout, blocks_of_rows
from parityscope.comparison.blocks import measure_block
from parityscope.comparison.moments import SUMS, read_moments, scale_by_power
from parityscope.comparison.statistics import Floats
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_DROPPED = (1 << 29) - 1  # mantissa bits that float64 has and float32 has not
_FLOAT32_MAGNITUDE = np.int32(0x7FFF_FFFF)
_HALF = np.int32(0x3F00_0000)  # the bits of 0.5 in float32
_SMALLEST_NORMAL = np.int32(0x0400)  # the bits of 2^-14 in float16
_INFINITE_HALF = np.int32(0x7C00)  # the bits of infinity in float16
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_BIAS = 1023
_IDLE: list[_Tables] = []  # list.pop and list.append are atomic, so that threads may share them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Two flat tensors, (n,), and what the kernel must know of them.

    `shape` and `parts` give an element's index back: complex tensors have 2 parts to an element, others 1.
    """

    reference: np.ndarray
    candidate: np.ndarray
    working: np.dtype[Any]
    exponent: int
    layout: Layout
    shape: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tables:
    """`sketch`: int64, (LANES, SKETCH_WIDTH); `values`: int64, (2, LANES, VALUE_BINS). All zero between uses."""

    sketch: np.ndarray
    values: np.ndarray


def measure_stretch(rows: Rows, start: int, stop: int) -> tuple[Floats, Channels | None]:
    """Statistics of the elements from flat index `start` to `stop`."""
    channels = rows.layout.channels
    moments = np.zeros(2 + SUMS)
    counts = np.zeros(8, np.int64)
    counts[6] = NOWHERE
    range_of_nothing = _MAGNITUDE, -_MAGNITUDE
    extremes = np.array([*range_of_nothing, SKETCH_WIDTH, 0, 0, NOWHERE, *range_of_nothing, 0, NOWHERE], np.int64)
    squares = np.zeros((2, channels))
    disagreeing = np.zeros(channels, np.int64)
    dtype = rows.candidate.dtype
    mask = _magnitude_mask(rows.working)
    with _borrow_tables() as tables:
        for at, (reference, candidate) in blocks_of_rows(
            (rows.reference, rows.candidate), rows.working, rows.exponent, start, stop
        ):
            part = slice(at, at + reference.size)
            keys = (_ulp_keys(side[part], dtype, rows.working) for side in (rows.reference, rows.candidate))
            added = moments, counts, extremes, tables.sketch, tables.values, squares, disagreeing
            measure_block((reference, candidate, *keys), mask, (at, rows.layout.inner), added)
        sketch = _read_sketch(tables.sketch, counts, extremes, rows.exponent)
        values = [_read_values(table, rows.exponent) for table in tables.values]
    unit = _ulp_unit(dtype, rows.working)
    floats = Floats(
        finite=int(counts[4]),
        reference_only=int(counts[0]),
        candidate_only=int(counts[1]),
        conflicting=int(counts[2]),
        agreeing=int(counts[3]),
        first_disagreeing=index_in(rows.shape, int(counts[6]), rows.parts),
        moments=read_moments(moments[2:], rows.exponent),
        ulp=float(moments[0]) / unit,
        ulp_max=float(moments[1]) / unit,
        max_abs=scale_by_power(float(extremes[4:5].view(np.float64)[0]), rows.exponent),
        max_index=index_in(rows.shape, int(extremes[5]), rows.parts),
        max_rel=float(extremes[8:9].view(np.float64)[0]),
        max_rel_index=index_in(rows.shape, int(extremes[9]), rows.parts),
        zero_references=int(counts[7]),
        reference_range=_read_range(extremes[0:2], rows.exponent, int(counts[4])),
        candidate_range=_read_range(extremes[6:8], rows.exponent, int(counts[4])),
        sketch=sketch,
        reference_values=values[0],
        candidate_values=values[1],
    )
    if not channels:
        return floats, None
    return floats, Channels(
        axis=rows.layout.axis,
        total=channels,
        error2=squares[0],
        reference2=squares[1],
        disagreeing=disagreeing,
    )


def index_in(shape: tuple[int, ...], at: int, parts: int = 1) -> tuple[int, ...] | None:
    """The index of flat element `at`; None for the kernels' "nowhere"."""
    if at >= NOWHERE or at < 0:
        return None
    return tuple(int(i) for i in np.unravel_index(at // parts, shape)) if shape else ()


@contextlib.contextmanager
def _borrow_tables() -> Iterator[_Tables]:
    """Cleared tables. On an error they are dropped: nobody knows what they hold."""
    try:
        tables = _IDLE.pop()
    except IndexError:
        tables = _Tables(
            sketch=np.zeros((LANES, SKETCH_WIDTH), np.int64), values=np.zeros((2, LANES, VALUE_BINS), np.int64)
        )
    yield tables
    _IDLE.append(tables)


def _read_sketch(table: np.ndarray, counts: np.ndarray, extremes: np.ndarray, exponent: int) -> Sketch:
    """Empties the part of the table that was used. Bin 0 of the kernel holds zeros and what is below the range."""
    used = slice(int(extremes[2]), int(extremes[3]) + 1)
    totals = table[:, used].sum(axis=0)
    table[:, used] = 0
    held = np.flatnonzero(totals)
    bins, found = held + used.start, totals[held]
    lowest = int(found[0]) if bins.size and bins[0] == 0 else 0
    inside = bins > 0
    return Sketch(
        zeros=int(counts[5]),
        below=lowest - int(counts[5]) if lowest else 0,
        floor=scale_by_power(1.0, exponent - OCTAVES),
        bins=Histogram(
            bins=bins[inside] - 1 + (exponent - OCTAVES) * BINS_PER_OCTAVE, counts=found[inside].astype(np.int64)
        ),
    )


def _read_values(table: np.ndarray, exponent: int) -> Histogram:
    """Empties the table, whose bins are sign and biased exponent; an exponent of 0 is zero (or scaled away)."""
    totals = table.sum(axis=0)
    table[:] = 0
    half = VALUE_BINS // 2
    zero = totals[:1] + totals[half : half + 1]
    ordered = np.concatenate([totals[:half:-1], zero, totals[1:half]])
    held = np.flatnonzero(ordered)
    signed = held - (half - 1)
    bins = np.sign(signed) * (np.abs(signed) - _BIAS + exponent + VALUE_OFFSET)
    return Histogram(bins=bins, counts=ordered[held])


def _read_range(keys: np.ndarray, exponent: int, finite: int) -> tuple[float, float]:
    """Ordered integers back to values: negative ones were mirrored."""
    if not finite:
        return 0.0, 0.0
    low, high = (keys ^ ((keys >> 63) & _MAGNITUDE)).view(np.float64)
    return scale_by_power(float(low), exponent) + 0.0, scale_by_power(float(high), exponent) + 0.0


def _key_dtype(working: np.dtype[Any]) -> np.dtype[Any]:
    """int32 beside float32 blocks, int64 beside float64 blocks."""
    return np.dtype(np.int32 if working == np.float32 else np.int64)


def _magnitude_mask(working: np.dtype[Any]) -> int:
    """All bits of a key but the sign."""
    return int(np.iinfo(_key_dtype(working)).max)


def _ulp_unit(dtype: np.dtype[Any], working: np.dtype[Any]) -> float:
    """The distance of two keys that are neighbours in `dtype`."""
    return float(2 ** (8 * _key_dtype(working).itemsize - _bit_width(dtype)))


def _ulp_keys(block: np.ndarray, dtype: np.dtype[Any], working: np.dtype[Any]) -> np.ndarray:
    """Keys of `block` rounded to `dtype`.

    Args:
        block: any float dtype, (n,).
        dtype: the format that distances are counted in.
        working: float32 or float64, the dtype of the blocks beside it.

    Returns:
        int32 or int64, (n,); a view where nothing has to be converted.
    """
    keys = _key_dtype(working)
    dtype = dtype.newbyteorder("=")
    if block.dtype == dtype and dtype.itemsize == keys.itemsize and block.flags.aligned:
        return block.view(keys)
    shift = 8 * keys.itemsize - _bit_width(dtype)
    if dtype == np.float16 and block.dtype == np.float32:
        result = _half_bits(block) << shift
    else:
        rounded = _round_block(block, dtype)
        result = rounded.view(f"u{dtype.itemsize}").astype(keys) << shift
        if block.dtype != dtype and not _has_infinity(dtype):
            lost = np.isnan(rounded) & ~np.isnan(block)
            beyond = (_largest_bits(dtype) + 1) << shift
            result[lost] = np.where(np.signbit(block[lost]), beyond | np.iinfo(keys).min, beyond)
    result.flags.writeable = False
    return result


def _half_bits(block: np.ndarray) -> np.ndarray:
    """float32, (n,), rounded to float16: its bits in an int32, (n,). NaN becomes infinity.

    Exists because numpy's own conversion costs 3.7 ns an element, more than all metrics together. Normal numbers are
    rounded in their integer form. Adding 1/2, whose neighbours are 2^-24 apart, rounds to float16's subnormal grid.
    Below 2^-14 the first falls short of the second, above it the second is cut off: the larger one is right. (A choice
    by numpy.where is slower than both together.)
    """
    bits = block.view(np.int32)
    magnitude = bits & _FLOAT32_MAGNITUDE
    normal = ((magnitude + 0xFFF + ((magnitude >> 13) & 1)) >> 13) - (112 << 10)  # exponent biases are 127 and 15
    with np.errstate(invalid="ignore"):
        subnormal = (np.abs(block) + np.float32(0.5)).view(np.int32) - _HALF
    result = np.maximum(np.minimum(normal, _INFINITE_HALF), np.minimum(subnormal, _SMALLEST_NORMAL))
    return np.asarray(result | ((bits >> 16) & 0x8000))


def _round_block(block: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if block.dtype.itemsize == 8 and dtype.itemsize < 4 and dtype != np.float16:
            block = _to_odd(block)
        return block.astype(dtype)


def _to_odd(block: np.ndarray) -> np.ndarray:
    """float64 cut to float32's mantissa, the last bit telling whether anything was lost.

    Exists because ml_dtypes converts float64 by way of float32 and so rounds twice: 1 + 2^-8 + 2^-40 becomes 1 in
    bfloat16 where 1 + 2^-7 is nearest. Rounding to odd first makes the second rounding right (Boldo and Melquiond,
    IEEE Transactions on Computers 57, 2008).
    """
    bits = block.astype(np.float64).view(np.int64)
    odd = (bits & ~_DROPPED) | np.where(bits & _DROPPED, _DROPPED + 1, 0)
    return np.where(np.isfinite(block), odd.view(np.float64), block)


def _bit_width(dtype: np.dtype[Any]) -> int:
    if dtype.kind == "f" and dtype.itemsize >= 2:
        return 8 * dtype.itemsize
    import ml_dtypes

    unsigned = dtype == ml_dtypes.float8_e8m0fnu
    return int(ml_dtypes.finfo(dtype).bits) + int(unsigned)


def _has_infinity(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or bool(np.isinf(np.array([np.inf]).astype(dtype))[0])


def _largest_bits(dtype: np.dtype[Any]) -> int:
    import ml_dtypes

    return int(np.array([float(ml_dtypes.finfo(dtype).max)]).astype(dtype).view(f"u{dtype.itemsize}")[0])
