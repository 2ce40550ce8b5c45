"""Bit-exact rounding of float32 and float64 arrays to a narrower format, in place of hardware that has it.

With p the precision of the format, a number of exponent e is rounded to a multiple of 2^(max(e, emin) - p + 1).

* In the normal range this is done on the integer that holds the number: adding half of the last kept place and
  clearing what lies below it carries into the exponent just as IEEE 754 wants (section 4.3, rounding-direction
  attributes; section 7.4 for overflow).
* Below 2^emin the distance between numbers is constant; there the number is counted in units of the smallest
  subnormal, in float64, where a float32 and the count are exact.

Sources: IEEE 754-2019; for formats without infinity, ONNX operator Cast-19, table of the conversions to float8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from parityscope.arithmetic.formats import Format

Overflow = Literal["infinity", "saturate"]
Mode = Literal["nearest-even", "toward-zero"]

# Of each container: the unsigned integer of its size, its precision and its emin.
_CONTAINERS: dict[np.dtype[Any], tuple[type[np.unsignedinteger[Any]], int, int]] = {
    np.dtype(np.float32): (np.uint32, 24, -126),
    np.dtype(np.float64): (np.uint64, 53, -1022),
}
# Formats to which a cast of float32 rounds just so: to nearest, ties to even, with subnormals and infinities.
_CAST: dict[str, np.dtype[Any]] = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_BLOCK = 1 << 20  # elements, chosen: weights of gigabytes need no more than this beside their rounded copy


def round_to(
    array: np.ndarray,
    number_format: Format,
    *,
    overflow: Overflow = "infinity",
    subnormals: bool = True,
    mode: Mode = "nearest-even",
) -> np.ndarray:
    """The numbers of `array` rounded to `number_format`, in the dtype and shape of `array` (always a copy).

    Args:
        array: float32 or float64, any shape.
        number_format: The format to round to; one that holds every number of the dtype changes nothing.
        overflow: What becomes of numbers that round to beyond the largest finite one. "infinity": infinity as in
            IEEE 754 (NaN in a format without infinities), but the largest finite number when rounding toward zero;
            infinities stay. "saturate": the largest finite number, for infinities too.
        subnormals: False replaces results below the smallest normal number by zero of the same sign.
        mode: Nearest with ties to even, or truncation.

    NaN stays NaN and the sign of zero is kept.

    Raises:
        TypeError: `array` is neither float32 nor float64.
    """
    array = np.asarray(array)
    if array.dtype not in _CONTAINERS:
        raise TypeError(f"round_to takes float32 or float64, not {array.dtype}")
    _, precision, emin = _CONTAINERS[array.dtype]
    if number_format.precision >= precision and number_format.emin <= emin:
        return array.copy()
    flat = np.ascontiguousarray(array).reshape(-1)
    rounded = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        rounded[start : start + _BLOCK] = _round_block(block, number_format, overflow, mode, subnormals=subnormals)
    return rounded.reshape(array.shape)


def changed_by(array: np.ndarray, number_format: Format, *, overflow: Overflow = "infinity") -> bool:
    """Whether `round_to` changes a number of `array` (float32 or float64); NaN is equal to NaN.

    It ends at the first block that has one, and takes no memory beyond a block.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return any(
        not np.array_equal(block, round_to(block, number_format, overflow=overflow), equal_nan=True) for block in blocks
    )


def _round_block(
    flat: np.ndarray,
    number_format: Format,
    overflow: Overflow,
    mode: Mode,
    *,
    subnormals: bool,
) -> np.ndarray:
    if flat.dtype == np.float32 and subnormals and mode == "nearest-even" and number_format.name in _CAST:
        return _round_by_cast(flat, number_format, overflow)
    integer, precision, emin = _CONTAINERS[flat.dtype]
    rounded = _round_normal(flat, integer, precision - number_format.precision, mode)
    magnitude = np.abs(flat)
    if number_format.emin > emin:
        tiny = np.flatnonzero(magnitude < number_format.smallest_normal)
        rounded[tiny] = _round_subnormal(flat[tiny], number_format, mode)
    if not subnormals:
        small = np.abs(rounded) < number_format.smallest_normal
        rounded[small] = np.copysign(flat.dtype.type(0), flat[small])
    beyond = np.flatnonzero(np.abs(rounded) > number_format.largest)
    rounded[beyond] = _round_overflow(flat[beyond], number_format, overflow, mode)
    nan = np.isnan(flat)
    rounded[nan] = flat[nan]
    return rounded


def _round_by_cast(flat: np.ndarray, number_format: Format, overflow: Overflow) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        rounded: np.ndarray = flat.astype(_CAST[number_format.name]).astype(np.float32)
    if overflow == "saturate":
        np.clip(rounded, -number_format.largest, number_format.largest, out=rounded)
    return rounded


def _round_normal(
    flat: np.ndarray,
    integer: type[np.unsignedinteger[Any]],
    dropped: int,
    mode: Mode,
) -> np.ndarray:
    """Rounds away the last `dropped` bits of each significand; the exponent is not bounded by the format's."""
    bits = flat.view(integer)
    below = integer((1 << dropped) - 1)
    half = integer(1 << (dropped - 1))
    # The sign bit cannot be reached by the carry, except from NaN patterns, which the caller puts back.
    if mode == "nearest-even":
        bits = bits + (half - integer(1)) + ((bits >> integer(dropped)) & integer(1))
    rounded: np.ndarray = (bits & ~below).view(flat.dtype)
    return rounded


def _round_subnormal(flat: np.ndarray, number_format: Format, mode: Mode) -> np.ndarray:
    """Rounds numbers below the format's smallest normal one to multiples of its smallest subnormal one."""
    count = np.abs(flat).astype(np.float64) / number_format.smallest_subnormal
    whole = np.rint(count) if mode == "nearest-even" else np.trunc(count)
    rounded: np.ndarray = np.copysign(whole * number_format.smallest_subnormal, flat).astype(flat.dtype)
    return rounded


def _round_overflow(flat: np.ndarray, number_format: Format, overflow: Overflow, mode: Mode) -> np.ndarray:
    """What numbers that are too large become; `flat` holds them as they were, infinities among them."""
    size = np.full(flat.shape, number_format.largest, flat.dtype)
    if overflow == "infinity":
        infinity = np.inf if number_format.infinities else np.nan
        size[np.isinf(flat) | (mode != "toward-zero")] = infinity
    signed: np.ndarray = np.copysign(size, flat)
    return signed
