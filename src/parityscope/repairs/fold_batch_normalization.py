"""Fold a BatchNormalization in FP32 before the model is converted.

What it changes: y = scale * (x - mean) / sqrt(variance + epsilon) + bias is one multiplication and one addition per
channel. Their constants are computed in float64 and stored in the parameters' own type. Behind a Conv, ConvTranspose or
Gemm whose output nobody else reads, they go into its weight and bias; in front of a Conv (without padding, or where
nothing is added) or Gemm that alone reads the result, into that. The node disappears. Otherwise it becomes Mul and Add.

Why it repairs: the running variance may be far beyond FP16's range while scale / sqrt(variance) is not.

Risk: none to the function (identical in exact arithmetic; FP32 rounding differs in the last place). Where another
program looks for the BatchNormalization's parameters by name, it will not find them.

Cost: none; a node less, or two cheap ones in its place.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site).

Source: the definition of BatchNormalization in the ONNX operator specification (inference mode).

y = gain * x + shift per channel, put into the weights of the node before it or behind it.

Before it (Conv, ConvTranspose, Gemm): w' = gain * w along the output channels, b' = gain * b + shift.
Behind it (Conv, Gemm): w' = w * gain along the input channels, b' = b + sum of w * shift. Padding puts zeros where the
affine map would have given the shift, so that a padded Conv takes up a gain alone.

In: float64 gain and shift, (channels,). Results are computed in float64 and stored in the weight's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.fusion.folding import normalization_as_line
from parityscope.arithmetic.graphs import add_constant, set_input
from parityscope.light_dataclasses import dataclass
from parityscope.repairs import Repair
from parityscope.repairs._editing import (
    array_of,
    insert_before,
    nodes_of,
    only_reader,
    remove_unread,
    replace_value,
)
from parityscope.repairs._raising import shapes_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChannelMap:
    """gain * x + shift per channel: float64, (channels,); `dtype` is the parameters' own."""

    gain: np.ndarray
    shift: np.ndarray
    dtype: np.dtype[np.generic]


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    for node in nodes_of(model, finding):
        if node.op_type == "BatchNormalization" and node.inputs[0] is not None:
            affine = _affine_of_node(node)
            if affine is None:
                return None
            return (
                _fold_backward(model, node, affine)
                or _fold_forward(model, node, affine)
                or _write_mul_add(model, node, affine)
            )
    return None


def _affine_of_node(node: ir.Node) -> _ChannelMap | None:
    arrays = [array_of(value) for value in node.inputs[1:]]
    line = normalization_as_line(node, arrays) if len(node.outputs) == 1 else None
    return (
        None if line is None or arrays[0] is None else _ChannelMap(gain=line[0], shift=line[1], dtype=arrays[0].dtype)
    )


def _fold_backward(model: ir.Model, node: ir.Node, affine: _ChannelMap) -> str | None:
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if source is None or before is None or only_reader(source) is not node:
        return None
    if not _into_previous(model, before, affine):
        return None
    # Whoever reads the result by name still finds it.
    replace_value(node.outputs[0], source)
    remove_unread(model, [node])
    return f"folded into {before.op_type} {before.name or source.name}"


def _fold_forward(model: ir.Model, node: ir.Node, affine: _ChannelMap) -> str | None:
    source, output = node.inputs[0], node.outputs[0]
    behind = only_reader(output)
    if source is None or behind is None or any(value is output for value in behind.inputs[1:]):
        return None
    if not _into_next(model, behind, affine):
        return None
    behind.replace_input_with(0, source)
    remove_unread(model, [node])
    return f"folded into {behind.op_type} {behind.name or behind.outputs[0].name} behind it"


def _write_mul_add(model: ir.Model, node: ir.Node, affine: _ChannelMap) -> str | None:
    source, output = node.inputs[0], node.outputs[0]
    rank = _rank_of_input(model, node)
    if source is None or rank == 0:
        return None
    shape = [-1] + [1] * (rank - 2)
    gain = add_constant(model.graph, affine.gain.astype(affine.dtype).reshape(shape), f"{output.name}::gain")
    shift = add_constant(model.graph, affine.shift.astype(affine.dtype).reshape(shape), f"{output.name}::shift")
    scaled = insert_before(node, "Mul", [source, gain], f"{output.name}::scaled", like=output)
    shifted = insert_before(node, "Add", [scaled, shift], f"{output.name}::shifted", like=output)
    replace_value(output, shifted)
    remove_unread(model, [node])
    return "replaced by Mul and Add"


def _rank_of_input(model: ir.Model, node: ir.Node) -> int:
    """The rank of the input, declared (there or at the output) or inferred; 0 when nobody knows."""
    held = [value for value in (node.inputs[0], node.outputs[0]) if value is not None]
    for value in held:
        if value.shape is not None:
            return len(value.shape)
    shapes = shapes_of(model)
    return next((len(shapes[str(value.name)]) for value in held if str(value.name) in shapes), 0)


def _into_previous(model: ir.Model, node: ir.Node, affine: _ChannelMap) -> bool:
    """Puts an affine map of the output of `node` into its weight and bias; False, nothing changed, if it cannot."""
    weight = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    old = _bias_of(node, affine.gain.size)
    if weight is None or old is None or node.domain:
        return False
    shift = affine.shift
    if node.op_type == "Conv":
        scaled = weight * affine.gain.reshape(-1, *[1] * (weight.ndim - 1))
    elif node.op_type == "ConvTranspose":
        # (inputs, outputs / groups, ...): the inputs of a group meet the outputs of the same group.
        groups = node.attributes.get_int("group", 1)
        gain = affine.gain.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        scaled = (weight.reshape(groups, -1, *weight.shape[1:]) * gain).reshape(weight.shape)
    elif node.op_type == "Gemm":
        beta = node.attributes.get_float("beta", 1.0)
        if beta == 0.0:
            return False
        scaled = weight * (affine.gain[:, None] if node.attributes.get_int("transB", 0) else affine.gain)
        shift = shift / beta
    else:
        return False
    _write_parameters(model, node, scaled, old * affine.gain + shift, weight.dtype)
    return True


def _into_next(model: ir.Model, node: ir.Node, affine: _ChannelMap) -> bool:
    """Puts an affine map of the first input of `node` into its weight and bias; False, nothing changed, if it cannot."""
    weight = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or node.domain or node.op_type not in {"Conv", "Gemm"}:
        return False
    if node.op_type == "Conv":
        if affine.shift.any() and _is_padded(node):
            return False
        groups, taps = node.attributes.get_int("group", 1), [1] * (weight.ndim - 2)
        outputs = weight.shape[0]
        gain, shift = (each.reshape(groups, 1, -1, *taps) for each in (affine.gain, affine.shift))
        grouped = weight.astype(np.float64).reshape(groups, outputs // groups, *weight.shape[1:])
        scaled = (grouped * gain).reshape(weight.shape)
        added = (grouped * shift).reshape(outputs, -1).sum(axis=1)
    else:
        turned, beta = node.attributes.get_int("transB", 0), node.attributes.get_float("beta", 1.0)
        if node.attributes.get_int("transA", 0) or beta == 0.0:
            return False
        outputs = weight.shape[0 if turned else 1]
        scaled = weight * (affine.gain if turned else affine.gain[:, None])
        product = weight.astype(np.float64) * (affine.shift if turned else affine.shift[:, None])
        added = product.sum(axis=1 if turned else 0) * node.attributes.get_float("alpha", 1.0) / beta
    old = _bias_of(node, outputs)
    if old is None:
        return False
    _write_parameters(model, node, scaled, old + added, weight.dtype)
    return True


def _bias_of(node: ir.Node, channels: int) -> np.ndarray | None:
    """float64, (channels,), zeros where there is none; None where it is computed or has another shape."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return np.zeros(channels)
    array = array_of(node.inputs[2])
    if array is None or array.size not in {1, channels} or (array.size > 1 and array.shape[-1] != channels):
        return None
    return np.broadcast_to(array.ravel().astype(np.float64), (channels,))


def _write_parameters(
    model: ir.Model, node: ir.Node, weight: np.ndarray, bias: np.ndarray, dtype: np.dtype[np.generic]
) -> None:
    name = node.outputs[0].name
    set_input(model, node, 1, weight.astype(dtype), f"{name}::folded_weight")
    set_input(model, node, 2, bias.astype(dtype), f"{name}::folded_bias")


def _is_padded(node: ir.Node) -> bool:
    return node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME") or any(
        tuple(node.attributes.get_ints("pads", ()))
    )


REPAIR = Repair(
    name="fold_batch_normalization",
    title="Fold a BatchNormalization in FP32",
    risk="none to the function; the node's parameters disappear from the file",
    apply=_apply_repair,
)
