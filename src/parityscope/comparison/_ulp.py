"""Floating-point values as integers in which neighbours differ by one: the way ULP distances are counted.

The bits of a format with sign and magnitude order like its values (IEEE 754-2019, 5.10). Here they are moved to the top
of an int32 or int64, so that one kernel serves every format; `unit` undoes that. The reference is first rounded to the
candidate's format (to nearest, ties to even): what the best possible candidate would hold is zero ULP away. A reference
beyond the format's range rounds to its infinity; in formats without one it lies one step behind the largest value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["key_dtype", "magnitude_mask", "ulp_keys", "ulp_unit"]

_DROPPED = (1 << 29) - 1  # mantissa bits that float64 has and float32 has not
_FLOAT32_MAGNITUDE = np.int32(0x7FFF_FFFF)
_HALF = np.int32(0x3F00_0000)  # the bits of 0.5 in float32
_SMALLEST_NORMAL = np.int32(0x0400)  # the bits of 2^-14 in float16
_INFINITE_HALF = np.int32(0x7C00)  # the bits of infinity in float16


def key_dtype(working: np.dtype[Any]) -> np.dtype[Any]:
    """int32 beside float32 blocks, int64 beside float64 blocks."""
    return np.dtype(np.int32 if working == np.float32 else np.int64)


def magnitude_mask(working: np.dtype[Any]) -> int:
    """All bits of a key but the sign."""
    return int(np.iinfo(key_dtype(working)).max)


def ulp_unit(dtype: np.dtype[Any], working: np.dtype[Any]) -> float:
    """The distance of two keys that are neighbours in `dtype`."""
    return float(2 ** (8 * key_dtype(working).itemsize - _bit_width(dtype)))


def ulp_keys(block: np.ndarray, dtype: np.dtype[Any], working: np.dtype[Any]) -> np.ndarray:
    """Keys of `block` rounded to `dtype`.

    Args:
        block: any float dtype, (n,).
        dtype: the format that distances are counted in.
        working: float32 or float64, the dtype of the blocks beside it.

    Returns:
        int32 or int64, (n,); a view where nothing has to be converted.
    """
    keys = key_dtype(working)
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
