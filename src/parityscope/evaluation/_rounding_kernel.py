"""The compiled loop of `rounding`."""

from __future__ import annotations

import numpy as np

from parityscope.compiling import compile_loop

_MAGNITUDE = np.uint32(0x7FFF_FFFF)
_SIGN = np.uint32(0x8000_0000)
_INFINITY = np.uint32(0x7F80_0000)
_ONE = np.uint32(1)


@compile_loop(kept=True)
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
    for i in range(values.shape[0]):
        magnitude = np.uint32(bits[i] & _MAGNITUDE)
        last = np.uint32(np.uint32(magnitude >> dropped) & _ONE)
        normal = np.uint32(np.uint32(magnitude + half + last) & kept)
        units = np.float32(np.rint(np.float32(abs(values[i]) * per_unit)))
        small = np.float32(units * unit).view(np.uint32)
        found = small if magnitude < smallest else normal
        found = beyond if found > largest else found
        found = magnitude if magnitude > _INFINITY else found
        rounded[i] = np.uint32(found | np.uint32(bits[i] & _SIGN))
