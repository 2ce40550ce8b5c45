"""Raw bytes of a tensor -> its elements, for every type that TensorRT has.

Types that numpy lacks are ml_dtypes' (bfloat16, float8_e4m3fn, float8_e8m0fnu); those of four bits come two to a byte, and are
given as one element to a byte of ml_dtypes' int4 and float4_e2m1fn.

Before a run the memory of an output is filled with 0xFF: NaN in every float format, -1 in signed integers. An output that
still holds nothing else was not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats import packed
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

POISON = 0xFF


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """The bytes that a tensor of this type and shape takes in TensorRT's memory."""
    return packed.nbytes_of(_numpy_type(dtype), shape)


def decode_tensor(content: np.ndarray, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """The elements of a tensor; `content` is uint8, (nbytes,), and may be shared with the result.

    Raises:
        ParityError: there are fewer or more bytes than the shape needs.
    """
    wanted = nbytes_of(dtype, shape)
    if content.nbytes != wanted:
        raise ParityError(
            f"a tensor of {dtype}{list(shape)} came with {content.nbytes} of {wanted} bytes",
            fix="this is a fault of TensorRT or of this tool: report it with the log",
        )
    return packed.unpack_array(content, _numpy_type(dtype), shape)


def to_storable_type(array: np.ndarray) -> np.ndarray:
    """The same numbers in a type that files of tensors have: each of these is exact in it."""
    wider = {"int4": "int8", "float4_e2m1fn": "float32", "float8_e8m0fnu": "float32"}.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def is_unwritten(content: np.ndarray) -> bool:
    """Whether memory that was filled with `POISON` holds nothing else; an empty tensor was written."""
    return content.size > 0 and bool((content == POISON).all())


def _numpy_type(dtype: str) -> np.dtype[Any]:
    import ml_dtypes

    found = getattr(ml_dtypes, dtype, None)
    held: np.dtype[Any] = np.dtype(dtype if found is None else found)
    return held
