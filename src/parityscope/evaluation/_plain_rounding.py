"""What `_rounding_kernel.round_bits` does, in numpy: the same bits, and there without numba being loaded."""

from __future__ import annotations

import numpy as np

__all__ = ["round_bits"]

_MAGNITUDE = np.uint32(0x7FFF_FFFF)
_SIGN = np.uint32(0x8000_0000)
_INFINITY = np.uint32(0x7F80_0000)
_ONE = np.uint32(1)
_STRETCH = 1 << 15  # elements: what lies between one pass and the next stays in the cache


def round_bits(
    values: np.ndarray,
    bits: np.ndarray,
    rounded: np.ndarray,
    dropped: np.uint32,
    smallest: np.uint32,
    unit: np.float32,
    largest: np.uint32,
    beyond: np.uint32,
) -> None:
    """`values` float32 (n,), `bits` the same as uint32; `rounded` uint32 (n,) is written."""
    half = np.uint32((_ONE << np.uint32(dropped - _ONE)) - _ONE)
    kept = np.uint32(~np.uint32(np.uint32(_ONE << dropped) - _ONE))
    per_unit = np.float32(np.float32(1.0) / unit)
    with np.errstate(all="ignore"):
        for start in range(0, values.size, _STRETCH):
            part = slice(start, start + _STRETCH)
            magnitude = bits[part] & _MAGNITUDE
            found = (magnitude + half + ((magnitude >> dropped) & _ONE)) & kept
            small = magnitude < smallest
            if small.any():
                found[small] = (np.rint(np.abs(values[part][small]) * per_unit) * unit).view(np.uint32)
            found[found > largest] = beyond
            lost = magnitude > _INFINITY
            found[lost] = magnitude[lost]
            np.bitwise_or(found, bits[part] & _SIGN, out=rounded[part])
