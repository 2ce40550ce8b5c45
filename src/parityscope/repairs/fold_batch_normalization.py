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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.repairs import Repair
from parityscope.repairs._affine import Affine, into_next, into_previous
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

__all__ = ["REPAIR"]


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


def _affine_of_node(node: ir.Node) -> Affine | None:
    if len(node.outputs) > 1 or node.attributes.get_int("training_mode", 0) != 0:
        return None
    arrays = [array for array in map(array_of, node.inputs[1:5]) if array is not None]
    if len(arrays) != 4:
        return None
    scale, bias, mean, variance = (array.astype(np.float64) for array in arrays)
    gain = scale / np.sqrt(variance + node.attributes.get_float("epsilon", DEFAULT_EPSILON))
    return Affine(gain=gain, shift=bias - mean * gain, dtype=arrays[0].dtype)


def _fold_backward(model: ir.Model, node: ir.Node, affine: Affine) -> str | None:
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if source is None or before is None or only_reader(source) is not node:
        return None
    if not into_previous(model, before, affine):
        return None
    # Whoever reads the result by name still finds it.
    replace_value(model, node.outputs[0], source)
    remove_unread(model, [node])
    return f"folded into {before.op_type} {before.name or source.name}"


def _fold_forward(model: ir.Model, node: ir.Node, affine: Affine) -> str | None:
    source, output = node.inputs[0], node.outputs[0]
    behind = only_reader(output)
    if source is None or behind is None or any(value is output for value in behind.inputs[1:]):
        return None
    if not into_next(model, behind, affine):
        return None
    behind.replace_input_with(0, source)
    remove_unread(model, [node])
    return f"folded into {behind.op_type} {behind.name or behind.outputs[0].name} behind it"


def _write_mul_add(model: ir.Model, node: ir.Node, affine: Affine) -> str | None:
    source, output = node.inputs[0], node.outputs[0]
    rank = _rank_of_input(model, node)
    if source is None or rank == 0:
        return None
    shape = [-1] + [1] * (rank - 2)
    gain = add_constant(model.graph, affine.gain.astype(affine.dtype).reshape(shape), f"{output.name}::gain")
    shift = add_constant(model.graph, affine.shift.astype(affine.dtype).reshape(shape), f"{output.name}::shift")
    scaled = insert_before(node, "Mul", [source, gain], f"{output.name}::scaled", like=output)
    shifted = insert_before(node, "Add", [scaled, shift], f"{output.name}::shifted", like=output)
    replace_value(model, output, shifted)
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


REPAIR = Repair(
    name="fold_batch_normalization",
    title="Fold a BatchNormalization in FP32",
    risk="none to the function; the node's parameters disappear from the file",
    apply=_apply_repair,
)
