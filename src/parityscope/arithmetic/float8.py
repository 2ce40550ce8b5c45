"""Products in FP8 E4M3: which can be, and the scales that bring their operands into the format's range.

Each operand x of a product is stored as x / s rounded to E4M3 (saturating), and multiplied as that times s: one scale s
a tensor for activations, one for each channel of what comes out for weights. Engines accumulate in FP32, and the
product's own result is of the type around it.

Scales are powers of two: the least with largest / s <= 448. Division and multiplication by them are exact in FP32, FP16
and BF16 alike, so that the same rounding follows in all of them; a floating-point format loses nothing by it but at
its ends, of which the upper one is never left and the lower one lies 2^15 below. They stay within 2^-14 and 2^7, where
FP16 holds both the scale (normal) and 448 times it.

Which products: Conv, Gemm and MatMul whose dimensions that are summed over and that come out are multiples of 16, however
many rows there are. cuBLAS asks for it of its FP8 kernels (cuBLAS library, `cublasLtMatmul()`: matrix dimensions as under
"Tensor Core Usage", where the bytes of a row of the transposed first operand, of the second one and of the result are
multiples of 16), and PyTorch checks just that before it calls them (`_scaled_mm` in aten/src/ATen/native/cuda/Blas.cpp:
"trailing dimension of mat1" and both of mat2 divisible by 16, the rows of mat1 free). Convolutions have no groups:
TensorRT has no optimized FP8 kernels for group and depthwise convolutions (release notes of 10.3 to 10.16, limitations).
For the channels of other convolutions the rule of products is taken over.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.fusion.folding import channel_axis_of
from parityscope.arithmetic.rounding import round_to
from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass
from parityscope.operators import CONTRACTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IN_FP8 = " in FP8"  # behind the name of a node: the decision that its operands are rounded to E4M3
E4M3 = FORMATS["f8e4m3"]
_ALIGNED = 16
_SMALLEST, _LARGEST = 2.0**-14, 2.0**7
_OPERANDS = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperandScaling:
    """The scale of an operand: float32, () for a whole tensor, or (channels,) along `axis`."""

    scale: np.ndarray
    axis: int = 0

    def along(self, rank: int) -> np.ndarray:
        """The scale in a shape that broadcasts over a tensor of this rank."""
        return (
            self.scale.reshape([-1 if axis == self.axis else 1 for axis in range(rank)])
            if self.scale.ndim
            else self.scale
        )


Scalings = dict[int, OperandScaling]  # by input of the product


def scalings_of(
    model: ir.Model, largest: Mapping[str, float], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Scalings]:
    """The scales of every product of the main graph that can be in FP8, by the name of the node.

    Args:
        model: A graph with unique node names.
        largest: The largest magnitude of each activation, over the samples and with whatever margin is wanted.
        shapes: Dimensions of activations on a sample.
    """
    found = {}
    for node in model.graph:
        if (
            node.op_type in CONTRACTIONS - {"ConvTranspose"}
            and node.domain in {"", "ai.onnx"}
            and _is_aligned(node, shapes)
        ):
            held = {index: _operand_scaling(node, index, largest) for index in _OPERANDS}
            scalings = {index: one for index, one in held.items() if one is not None}
            if len(scalings) == len(_OPERANDS):
                found[node.name or ""] = scalings
    return found


def quantize_and_back(array: np.ndarray, scaling: OperandScaling) -> np.ndarray:
    """What a product reads in the place of `array` (float32 or float64, any shape)."""
    scale = scaling.along(array.ndim).astype(array.dtype)
    rounded: np.ndarray = round_to(array / scale, E4M3, overflow="saturate") * scale
    return rounded


def _operand_scaling(node: ir.Node, index: int, largest: Mapping[str, float]) -> OperandScaling | None:
    value = node.inputs[index]
    tensor = constant_value(value) if value is not None else None
    if value is None or value.dtype != ir.DataType.FLOAT:
        return None
    if tensor is None:
        size = largest.get(str(value.name), math.nan)
        return OperandScaling(scale=_power_of_two_scales(np.array(size))) if math.isfinite(size) else None
    array = np.abs(tensor.numpy())
    axis = scale_axis_of(node, index, array.ndim)
    others = tuple(each for each in range(array.ndim) if each != axis)
    size = array.max(axis=None if axis is None else others, initial=0.0)
    return OperandScaling(scale=_power_of_two_scales(size), axis=axis or 0) if np.isfinite(size).all() else None


def scale_axis_of(node: ir.Node, index: int, rank: int) -> int | None:
    """The axis of a constant operand of `rank` dimensions that comes out; None where one scale is for all of it."""
    return channel_axis_of(node, index, rank) if node.op_type != "MatMul" or rank == 2 else None


def _power_of_two_scales(largest: np.ndarray) -> np.ndarray:
    """The least powers of two that are at least `largest` / 448, within their bounds. Of 0 it is the least of all."""
    wanted = np.maximum(np.asarray(largest, np.float64) / E4M3.largest, _SMALLEST)
    return np.minimum(np.exp2(np.ceil(np.log2(wanted))), _LARGEST).astype(np.float32)


def _is_aligned(node: ir.Node, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether what is summed over and what comes out are multiples of what kernels take."""
    sizes = [_dimensions_of(node.inputs[index], shapes) for index in _OPERANDS]
    first, second = sizes
    if first is None or second is None or min(len(first), len(second)) < 2:
        return False
    if node.op_type == "Conv":
        return node.attributes.get_int("group", 1) == 1 and second[0] % _ALIGNED == 0 and second[1] % _ALIGNED == 0
    depth = first[0] if node.attributes.get_int("transA", 0) else first[-1]
    width = second[-2] if node.attributes.get_int("transB", 0) else second[-1]
    return depth % _ALIGNED == 0 and width % _ALIGNED == 0


def _dimensions_of(value: ir.Value | None, shapes: Mapping[str, Sequence[int]]) -> Sequence[int] | None:
    tensor = constant_value(value) if value is not None else None
    if tensor is not None:
        return [int(dim) for dim in tensor.shape.numpy()]
    return shapes.get(str(value.name)) if value is not None else None
