"""Scales and shifts behind a product folded into its parameters, as engines do before they round them.

Conv, MatMul or Gemm followed by Mul, Div, Add, Sub of one number per output channel, or by a BatchNormalization:
w (x gain) and b gain + shift are computed in float64 and stored in float32. What is rounded afterwards is the folded
weight, whose roundings are other ones than the original's.

Source: every deployment engine's constant folding (OpenVINO: ConvMultiplyFusion and
MatMulMultiplyFusion; TensorRT: Conv and Scale fusion).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.case.graph import constant_input
from parityscope.hypotheses.arithmetic.edits import read_constant_instead, substitute_result
from parityscope.light_dataclasses import dataclass
from parityscope.operators import with_trait

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["can_be_folded", "fold_all"]

_SCALES = with_trait("affine")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Affine:
    """y = gain x + shift per output channel: float64, (channels,)."""

    gain: np.ndarray
    shift: np.ndarray


def can_be_folded(graph: ir.Graph) -> bool:
    """Whether something stands behind a product that can be folded into it."""
    return any(_next_foldable(node, graph) is not None for node in graph)


def fold_all(model: ir.Model, _node: ir.Node, _parameter: float) -> None:
    """Folds all that can be; a rewriting of a whole region."""
    for node in list(model.graph):
        product = node
        while (found := _next_foldable(product, model.graph)) is not None:
            product = _fold_behind(model, product, *found)


def _next_foldable(node: ir.Node, graph: ir.Graph) -> tuple[ir.Node, _Affine] | None:
    """The node behind a product that can be folded into it."""
    weight = _weight_of_product(node)
    users = list(node.outputs[0].uses())
    if weight is None or len(users) != 1 or node.outputs[0] is graph.outputs[0]:
        return None
    behind, index = users[0]
    channels = weight[0].shape[weight[1]]
    if behind.op_type == "BatchNormalization" and node.op_type == "Conv":
        affine = _affine_of_normalization(behind)
    elif behind.op_type in _SCALES:
        affine = _scale_or_shift(behind, index, channels, 0 if node.op_type != "Conv" else weight[0].ndim - 2)
    else:
        affine = None
    if affine is None or (node.op_type == "MatMul" and affine.shift.any()):
        return None  # MatMul has no bias to take a shift
    return behind, affine


def _weight_of_product(node: ir.Node) -> tuple[np.ndarray, int] | None:
    """A product's weight and its axis of output channels."""
    array = constant_input(node, 1)
    if array is None or node.domain or array.dtype != np.float32:
        return None
    if node.op_type == "Conv" and (
        len(node.inputs) < 3 or node.inputs[2] is None or constant_input(node, 2) is not None
    ):
        return array, 0
    if node.op_type == "MatMul" and array.ndim == 2:
        return array, 1
    plain = node.attributes.get_float("alpha", 1.0) == 1.0 and node.attributes.get_float("beta", 1.0) == 1.0
    if node.op_type == "Gemm" and plain and (len(node.inputs) < 3 or constant_input(node, 2) is not None):
        return array, 0 if node.attributes.get_int("transB", 0) else 1
    return None


def _scale_or_shift(node: ir.Node, index: int, channels: int, behind: int) -> _Affine | None:
    """Of Mul, Div, Add or Sub with a parameter of one number, or one per channel with `behind` axes behind it."""
    array = constant_input(node, 1 - index)
    if array is None or (index == 1 and node.op_type in {"Div", "Sub"}):
        return None
    per_channel = (channels, *[1] * behind)
    leading = array.shape[: max(0, array.ndim - behind - 1)]
    if array.size != 1 and (array.shape[len(leading) :] != per_channel or any(each != 1 for each in leading)):
        return None
    values = np.broadcast_to(array.astype(np.float64).reshape(-1), (channels,))
    one, zero = np.ones(channels), np.zeros(channels)
    return {
        "Mul": lambda: _Affine(gain=values, shift=zero),
        "Div": lambda: _Affine(gain=1.0 / values, shift=zero),
        "Add": lambda: _Affine(gain=one, shift=values),
        "Sub": lambda: _Affine(gain=one, shift=-values),
    }[node.op_type]()


def _affine_of_normalization(node: ir.Node) -> _Affine | None:
    arrays = [constant_input(node, index) for index in (1, 2, 3, 4)]
    if node.attributes.get_int("training_mode", 0) or any(array is None for array in arrays):
        return None
    scale, bias, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = scale / np.sqrt(variance + node.attributes.get_float("epsilon", DEFAULT_EPSILON))
    if not np.isfinite(gain).all():
        return None  # a variance of -epsilon or less: nobody folds that
    return _Affine(gain=gain, shift=bias - mean * gain)


def _fold_behind(model: ir.Model, node: ir.Node, behind: ir.Node, affine: _Affine) -> ir.Node:
    """The product with the affine in it, in place of `behind`; gives the node to fold the next one into."""
    found = _weight_of_product(node)
    if found is None:
        raise ValueError(f"{node.op_type} holds no weight")
    weight, axis = found
    shape = [-1 if each == axis else 1 for each in range(weight.ndim)]
    read_constant_instead(model, node, 1, (weight.astype(np.float64) * affine.gain.reshape(shape)).astype(np.float32))
    if node.op_type != "MatMul":
        old = constant_input(node, 2)
        bias = np.zeros(affine.gain.size) if old is None else old.astype(np.float64)
        read_constant_instead(model, node, 2, (bias * affine.gain + affine.shift).astype(np.float32))
    substitute_result(model, behind, node.outputs[0])
    model.graph.remove(behind, safe=True)
    return node
