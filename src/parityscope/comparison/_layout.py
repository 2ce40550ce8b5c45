"""What two tensors are to the comparison, and how their blocks reach the kernels.

float32 and float64 are read in place. Every other format (float16, bfloat16, float8, foreign byte order, unaligned
memory) is converted exactly, block by block, to float32 or float64, so that no copy of a whole tensor is made; only an
array that is not C-contiguous is copied first.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["float", "complex", "exact", "text"]
STRETCH = 32768  # elements converted at once: 128 KiB of float32 on each side stay in an L2 cache
_RESTFUL = 100  # float64 magnitudes up to 2^100 and errors down to 2^-160 are far from over- and underflow of squares


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where channels lie in a flat tensor: `channels` of them, `inner` elements from one to the next; none: 0."""

    axis: int
    channels: int
    inner: int


def kind_of(dtype: np.dtype[Any]) -> Kind:
    """How tensors of `dtype` are compared.

    Raises:
        ValueError: no ONNX tensor has this type.
    """
    if dtype.kind in "biu":
        return "exact"
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return "float"
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return "complex"
    if dtype.kind in "OUST":
        return "text"
    import ml_dtypes

    for kind, info in (("float", ml_dtypes.finfo), ("exact", ml_dtypes.iinfo)):
        try:
            info(dtype)
        except (ValueError, TypeError, KeyError):
            continue
        return "float" if kind == "float" else "exact"
    raise ValueError(f"tensors of type {dtype} cannot be compared")


def channel_axis(rank: int) -> int | None:
    """Where channels are taken to lie in a tensor of this rank when nobody says; None below rank 2.

    Chosen by what ONNX models hold: NCHW and NCDHW images and attention (batch, head, token, token) have them on axis
    1, as (batch, class) has; rank 3 is mostly (batch, token, feature). A wrong guess costs only a worst "channel"
    that is a row of something else.
    """
    return None if rank < 2 else 2 if rank == 3 else 1


def layout_of(shape: tuple[int, ...], channel_axis: int | None) -> Layout:
    """The channels of a C-contiguous tensor.

    Raises:
        ValueError: the tensor has no such axis.
    """
    if channel_axis is None:
        return Layout(axis=0, channels=0, inner=1)
    if not -len(shape) <= channel_axis < len(shape):
        raise ValueError(f"there is no axis {channel_axis} in a tensor of shape {shape}")
    axis = channel_axis % len(shape)
    return Layout(axis=axis, channels=shape[axis], inner=max(1, math.prod(shape[axis + 1 :])))


def flat_row(array: np.ndarray) -> np.ndarray:
    """`array`, of any shape and dtype, as one row (n,) that is read-only and C-contiguous; a view where it can be.

    Always read-only: each kernel is then compiled for one type only.
    """
    row = np.ascontiguousarray(array).view(np.ndarray).reshape(-1)
    row.flags.writeable = False
    return row


def working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds every value of all `dtypes` exactly, else float64."""
    small = all(dtype.itemsize < 4 or dtype.newbyteorder("=") == np.float32 for dtype in dtypes)
    return np.dtype(np.float32 if small else np.float64)


def exponent_of(*rows: np.ndarray) -> int:
    """The power of two that float64 rows are divided by, so that their squares neither overflow nor vanish."""
    largest = 0.0
    for row in rows:
        for start in range(0, row.size, STRETCH):
            block = row[start : start + STRETCH]
            top = max(float(block.max(initial=0)), -float(block.min(initial=0)))
            if not math.isfinite(top):
                finite = np.abs(block[np.isfinite(block)])
                top = float(finite.max(initial=0))
            largest = max(largest, top)
    if largest == 0:
        return 0
    exponent = math.frexp(largest)[1]
    return 0 if abs(exponent) <= _RESTFUL else exponent


def blocks_of_rows(
    rows: tuple[np.ndarray, ...], dtype: np.dtype[Any], exponent: int, start: int, stop: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """(flat index, blocks in `dtype`) from `start` to `stop`: one stretch in place where nothing is to be converted."""
    if exponent == 0 and all(row.dtype == dtype and row.flags.aligned for row in rows):
        yield start, tuple(row[start:stop] for row in rows)
        return
    for at in range(start, stop, STRETCH):
        yield at, tuple(_convert_block(row[at : min(stop, at + STRETCH)], dtype, exponent) for row in rows)


def _convert_block(block: np.ndarray, dtype: np.dtype[Any], exponent: int) -> np.ndarray:
    with np.errstate(invalid="ignore", under="ignore"):  # signalling NaN; what vanishes is 2^-1000 of the largest
        if block.dtype == np.float16 and dtype == np.float32:
            wide = _half_values()[block.view(np.uint16)]
        else:
            wide = block.astype(dtype)
        if exponent:
            wide = np.ldexp(wide, -exponent)
    wide.flags.writeable = False
    return wide


@functools.cache
def _half_values() -> np.ndarray:
    """Every float16 as a float32, by its bits: looking them up takes a quarter of numpy's 2.9 ns to convert one."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
