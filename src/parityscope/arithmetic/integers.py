"""Integer formats with scale and zero point, and quantization to them, after ONNX's QuantizeLinear and DequantizeLinear.

A quantized tensor holds integers q that stand for (q - zero_point)·scale, with one scale and zero point for the whole
tensor or one for each index along an axis:

    q = saturate(round(x / scale) + zero_point),   round to nearest, ties to even, in float32
    x = (q - zero_point)·scale

Sources: ONNX operators QuantizeLinear-21 and DequantizeLinear-21; for the choice of scales, DynamicQuantizeLinear-11
(asymmetric) and ONNX Runtime's documentation "Quantize ONNX models" (symmetric: zero point 0, range of ±highest).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerFormat:
    """Integers from `lowest` to `highest` in two's complement.

    `dtype` is the numpy dtype that holds them: the one of that size, or of 8 bits for the formats of 4.
    """

    name: str
    dtype: str
    bits: int
    signed: bool
    source: str

    @property
    def lowest(self) -> int:
        """-2^(bits - 1), or 0."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return (1 << (self.bits - self.signed)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a tensor is quantized.

    `scale` (float32) and `zero_point` (the format's dtype) are scalars with `axis` None, else of one axis: one element for
    each index along `axis` of the tensor.
    """

    number_format: IntegerFormat
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Quantizer:
    """What is left of a float32 activation by quantization with one `scale`: to `levels`, or to E4M3 where that is None.

    `levels` are the lowest and the highest integer. Equal records quantize equally.
    """

    scale: float
    levels: tuple[int, int] | None

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """X / scale, to the nearest number that there is (saturating), times scale: as float32, of the same shape."""
        scale = np.float32(self.scale)
        steps = np.asarray(array, np.float32) / scale
        if self.levels is None:
            steps = round_to(steps, FORMATS["f8e4m3"], overflow="saturate")
        else:
            steps = np.clip(np.rint(steps, out=steps), *self.levels, out=steps)
        steps *= scale
        return steps


def quantize_array(array: np.ndarray, how: Quantization) -> np.ndarray:
    """The integers that stand for `array`.

    Args:
        array: float32, any shape that has the axis.
        how: Scale and zero point.

    Returns:
        The format's dtype, same shape. Infinities saturate; NaN becomes the lowest integer, as in ONNX Runtime.
    """
    scale, zero_point = _broadcast_quantization(how, array.ndim)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # saturates; 0 / 0 is NaN
        levels = np.rint(np.asarray(array, np.float32) / scale) + zero_point.astype(np.float32)
    lowest, highest = how.number_format.lowest, how.number_format.highest
    levels = np.where(np.isnan(levels), lowest, np.clip(levels, lowest, highest))
    return levels.astype(how.number_format.dtype)


def dequantize_integers(integers: np.ndarray, how: Quantization) -> np.ndarray:
    """The float32 numbers that `integers`, of the format's dtype, stand for."""
    scale, zero_point = _broadcast_quantization(how, integers.ndim)
    numbers: np.ndarray = (integers.astype(np.int32) - zero_point.astype(np.int32)).astype(np.float32) * scale
    return numbers


def fake_quantize(array: np.ndarray, how: Quantization) -> np.ndarray:
    """The float32 numbers that are left of `array`, float32, after quantization: what a quantized network computes with."""
    return dequantize_integers(quantize_array(array, how), how)


def quantization_of(
    array: np.ndarray, number_format: IntegerFormat, *, axis: int | None = None, symmetric: bool
) -> Quantization:
    """The quantization that just holds all finite numbers of `array`, which may have none.

    Symmetric: zero point 0 (the middle of an unsigned format's range, 2^(bits - 1)) and a scale of max|x| / (the integers
    above it). Otherwise the smallest and the largest number, and zero, are integers' ends. Where every number is 0 the
    scale is 1.
    """
    finite = np.where(np.isfinite(array), array, 0).astype(np.float32)
    others = None if axis is None else tuple(index for index in range(array.ndim) if index != axis % array.ndim)
    low = np.minimum(finite.min(axis=others, initial=0.0), np.float32(0))
    high = np.maximum(finite.max(axis=others, initial=0.0), np.float32(0))
    lowest, highest = number_format.lowest, number_format.highest
    if symmetric:
        middle = 0 if number_format.signed else 1 << (number_format.bits - 1)
        scale = np.maximum(-low, high) / np.float32(highest - middle)
        zero_point = np.full(scale.shape, middle, number_format.dtype)
        scale = _positive_scale(scale)
    else:
        scale = _positive_scale((high - low) / np.float32(highest - lowest))
        zero_point = np.clip(np.rint(lowest - low / scale), lowest, highest).astype(number_format.dtype)
    return Quantization(number_format=number_format, scale=scale, zero_point=zero_point, axis=axis)


def _positive_scale(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 0, scale, np.float32(1)).astype(np.float32)


def _broadcast_quantization(how: Quantization, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point in a shape that broadcasts with a tensor of this rank."""
    scale, zero_point = np.asarray(how.scale, np.float32), np.asarray(how.zero_point)
    if how.axis is None:
        return scale, zero_point
    shape = [1] * rank
    shape[how.axis] = -1
    return scale.reshape(shape), zero_point.reshape(shape)


_ALL = (
    IntegerFormat(name="int8", dtype="int8", bits=8, signed=True, source="ONNX QuantizeLinear-10"),
    IntegerFormat(name="uint8", dtype="uint8", bits=8, signed=False, source="ONNX QuantizeLinear-10"),
    IntegerFormat(name="int4", dtype="int8", bits=4, signed=True, source="ONNX QuantizeLinear-21"),
    IntegerFormat(name="uint4", dtype="uint8", bits=4, signed=False, source="ONNX QuantizeLinear-21"),
)

INTEGERS: Mapping[str, IntegerFormat] = MappingProxyType({each.name: each for each in _ALL})
"""Every integer format by name."""
