"""Elements of four bits, two to a byte, the first one in the low half; an odd one leaves the last high half zero.

Source: the ONNX standard's packing of INT4, UINT4 and FLOAT4E2M1, which TensorRT reads and writes, and trtexec with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

HALF_BYTES = frozenset({"int4", "uint4", "float4_e2m1fn"})
_LOW = 0x0F


def nbytes_of(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """The bytes of a tensor of this type (numpy's or ml_dtypes') and shape outside of this process."""
    count = math.prod(shape)
    return (count + 1) // 2 if dtype.name in HALF_BYTES else count * dtype.itemsize


def unpack_array(content: np.ndarray, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray:
    """The elements of a tensor from its bytes, uint8 (`nbytes_of`,), one to a byte where they are packed; else a view."""
    if dtype.name not in HALF_BYTES:
        return content.view(dtype).reshape(shape)
    pairs = np.stack([content & _LOW, content >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if dtype.name == "int4":  # the element's sign is the fourth bit
        return ((pairs.astype(np.int8) ^ 8) - 8).astype(np.int8).astype(dtype).reshape(shape)
    return pairs.view(dtype).reshape(shape)


def pack_array(array: np.ndarray) -> bytes:
    """The bytes of a tensor in C order, as `unpack_array` takes them."""
    whole = np.ascontiguousarray(array)
    if whole.dtype.name not in HALF_BYTES:
        return whole.tobytes()
    halves = np.append(whole.reshape(-1).view(np.uint8) & _LOW, np.zeros(whole.size % 2, np.uint8))
    return bytes(halves[0::2] | halves[1::2] << 4)
