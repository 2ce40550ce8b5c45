"""Fold a BatchNormalization in FP32 before the model is converted.

What it changes: y = scale * (x - mean) / sqrt(variance + epsilon) + bias is one multiplication and one addition per
channel. Their constants are computed in float64 and stored in the parameters' own type. Behind a Conv or
ConvTranspose whose output nobody else reads, they go into its weight and bias and the node disappears; otherwise the
node becomes Mul and Add.

Why it repairs: the running variance may be far beyond FP16's range while scale / sqrt(variance) is not.

Risk: none to the function (identical in exact arithmetic; FP32 rounding differs in the last place). Where another
program looks for the BatchNormalization's parameters by name, it will not find them.

How to undo: keep the original file; the repair only ever writes a copy.

Source: the definition of BatchNormalization in the ONNX operator specification (inference mode).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import constant_value, node_name
from parityscope.repairs import Repair

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding

__all__ = ["REPAIR"]

_EPSILON = 1e-5  # the operator's default
_CHANNEL_OUT = {"Conv": 0, "ConvTranspose": 1}  # the axis of the weight that output channels lie on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Affine:
    """y = gain * x + shift per channel: float64, (channels,)."""

    gain: np.ndarray
    shift: np.ndarray
    dtype: np.dtype[np.generic]


def _apply(model: ir.Model, finding: Finding) -> str | None:
    wanted = finding.details.get("node")
    computing = [node for node in model.graph if node.op_type != "Constant"]
    for index, node in enumerate(computing):
        if node.op_type == "BatchNormalization" and node_name(node, index) == wanted:
            affine = _affine(node)
            return (
                None if affine is None else _into_convolution(model, node, affine) or _as_mul_add(model, node, affine)
            )
    return None


def _affine(node: ir.Node) -> _Affine | None:
    training = node.attributes.get("training_mode")
    if len(node.outputs) > 1 or (training is not None and training.as_int()):
        return None
    tensors = [constant_value(value) for value in node.inputs[1:5]]
    if any(tensor is None for tensor in tensors):
        return None
    arrays = [np.asarray(tensor.numpy()) for tensor in tensors if tensor is not None]
    scale, bias, mean, variance = (array.astype(np.float64) for array in arrays)
    epsilon = node.attributes.get("epsilon")
    gain = scale / np.sqrt(variance + (_EPSILON if epsilon is None else epsilon.as_float()))
    return _Affine(gain=gain, shift=bias - mean * gain, dtype=arrays[0].dtype)


def _into_convolution(model: ir.Model, node: ir.Node, affine: _Affine) -> str | None:
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if source is None or before is None or before.op_type not in _CHANNEL_OUT:
        return None
    weight = constant_value(before.inputs[1])
    bias = constant_value(before.inputs[2]) if len(before.inputs) > 2 else None
    shared = len(list(source.uses())) > 1 or source.is_graph_output()
    if weight is None or shared or (len(before.inputs) > 2 and before.inputs[2] is not None and bias is None):
        return None
    group = before.attributes.get("group")
    if before.op_type == "ConvTranspose" and group is not None and group.as_int() != 1:
        return None
    values = np.asarray(weight.numpy())
    shape = [1] * values.ndim
    shape[_CHANNEL_OUT[before.op_type]] = -1
    old = np.zeros_like(affine.gain) if bias is None else np.asarray(bias.numpy()).astype(np.float64)
    new_weight = (values.astype(np.float64) * affine.gain.reshape(shape)).astype(values.dtype)
    new_bias = (old * affine.gain + affine.shift).astype(values.dtype)
    _set_input(model, before, 1, new_weight, f"{source.name}::folded_weight")
    _set_input(model, before, 2, new_bias, f"{source.name}::folded_bias")
    output = node.outputs[0]
    name = output.name
    _replace(model, output, source)
    model.graph.remove(node, safe=True)
    # Whoever reads the result by name still finds it.
    source.name = name
    return f"folded into {before.op_type} {before.name or source.name}"


def _as_mul_add(model: ir.Model, node: ir.Node, affine: _Affine) -> str | None:
    import onnx_ir as ir

    source, output = node.inputs[0], node.outputs[0]
    rank = _rank(node)
    if source is None or rank == 0:
        return None
    shape = [-1] + [1] * (rank - 2)
    gain = _initializer(model, affine.gain.astype(affine.dtype).reshape(shape), f"{output.name}::gain")
    shift = _initializer(model, affine.shift.astype(affine.dtype).reshape(shape), f"{output.name}::shift")
    scaled = ir.Node("", "Mul", [source, gain], outputs=[ir.Value(name=f"{output.name}::scaled")])
    result = ir.Value(name=output.name, type=output.type, shape=output.shape)
    output.name = f"{output.name}::old"
    shifted = ir.Node("", "Add", [scaled.outputs[0], shift], outputs=[result])
    model.graph.insert_before(node, [scaled, shifted])
    _replace(model, output, result)
    model.graph.remove(node, safe=True)
    return "replaced by Mul and Add"


def _rank(node: ir.Node) -> int:
    """The rank of the input: declared, or that of the convolution before it; 0 when unknown."""
    source = node.inputs[0]
    if source is not None and source.shape is not None:
        return len(source.shape)
    before = None if source is None else source.producer()
    if before is not None and before.op_type in _CHANNEL_OUT:
        weight = constant_value(before.inputs[1])
        return 0 if weight is None else len(weight.shape)
    return 0


def _set_input(model: ir.Model, node: ir.Node, position: int, array: np.ndarray, name: str) -> None:
    value = _initializer(model, array, name)
    if position < len(node.inputs):
        node.replace_input_with(position, value)
    else:
        node.resize_inputs(position + 1)
        node.replace_input_with(position, value)


def _initializer(model: ir.Model, array: np.ndarray, name: str) -> ir.Value:
    import onnx_ir as ir

    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _replace(model: ir.Model, old: ir.Value, new: ir.Value) -> None:
    for user, index in list(old.uses()):
        user.replace_input_with(index, new)
    for position, output in enumerate(model.graph.outputs):
        if output is old:
            model.graph.outputs[position] = new


REPAIR = Repair(
    name="fold_batch_normalization",
    title="Fold a BatchNormalization in FP32",
    risk="none to the function; the node's parameters disappear from the file",
    apply=_apply,
)
