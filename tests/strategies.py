"""Hypothesis strategies for tensors: every special value, every shape down to empty and 0-d, every float format.

Values are drawn as bits, so that NaN, infinities, -0.0, subnormals and both ends of the range are as likely as they are
among the numbers that a format can hold; `specials` mixes in the named ones.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

FLOAT_DTYPES = tuple(
    np.dtype(name)
    for name in (
        np.float32,
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    )
)

shapes = st.one_of(
    st.just(()),
    st.just((0,)),
    st.just((3, 0, 2)),
    st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
)


def specials(dtype: np.dtype[Any]) -> tuple[float, ...]:
    """The values that arithmetic stumbles over, as far as the format has them."""
    info = ml_dtypes.finfo(dtype)
    smallest = float(info.smallest_subnormal)
    return (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf"), smallest, -smallest, float(info.max))


def wide(array: np.ndarray) -> np.ndarray:
    """float64, exactly, without numpy's warning about signalling NaN."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def arrays(
    dtype: np.dtype[Any], shape: tuple[int, ...], *, finite: bool = False, magnitude: float | None = None
) -> st.SearchStrategy[np.ndarray]:
    """Arrays of a float dtype; `finite` without NaN and infinities, `magnitude` with |x| at most that."""
    size = int(np.prod(shape, dtype=np.int64))
    unsigned = f"u{dtype.itemsize}"

    def to_bits(value: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.array([value]).astype(dtype).view(unsigned)[0])

    def keep(bits: int) -> int:
        value = float(wide(np.array([bits], unsigned).view(dtype))[0])
        if finite and not np.isfinite(value):
            return to_bits(1.0)
        return bits if magnitude is None or not abs(value) > magnitude else to_bits(np.copysign(magnitude, value))

    element = st.one_of(
        st.integers(0, 2 ** (8 * dtype.itemsize) - 1),
        st.sampled_from(specials(dtype)).map(to_bits),
        st.floats(-8, 8).map(to_bits),
    )
    return st.lists(element.map(keep), min_size=size, max_size=size).map(
        lambda bits: np.array(bits, unsigned).view(dtype).reshape(shape)
    )


@st.composite
def tensors(draw: st.DrawFn, dtype: np.dtype[Any] | None = None, *, finite: bool = False) -> np.ndarray:
    """One tensor of any shape."""
    chosen = draw(st.sampled_from(FLOAT_DTYPES)) if dtype is None else dtype
    return draw(arrays(chosen, draw(shapes), finite=finite))


@st.composite
def pairs(
    draw: st.DrawFn, dtype: np.dtype[Any] | None = None, *, finite: bool = False, magnitude: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(reference, candidate) of one shape; some elements are equal on both sides, also non-finite ones."""
    chosen = draw(st.sampled_from(FLOAT_DTYPES)) if dtype is None else dtype
    shape = draw(shapes)
    reference = draw(arrays(chosen, shape, finite=finite, magnitude=magnitude))
    other = draw(arrays(chosen, shape, finite=finite, magnitude=magnitude))
    size = reference.size
    same = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(shape)
    bits = f"u{chosen.itemsize}"
    return reference, np.where(same, reference.view(bits), other.view(bits)).astype(bits).view(chosen)
