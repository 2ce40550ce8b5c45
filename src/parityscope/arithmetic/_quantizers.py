"""QuantizeLinear and DequantizeLinear of float8 written out as what they are: a division and a Cast, a Cast and a product.

Exists because ONNX Runtime 1.31's optimizer makes an integer product of DequantizeLinear and MatMul whatever the eight
bits are, and then refuses its own graph; and because a product with what a constant holds is better known beforehand.
Their numbers are the same (ONNX operators QuantizeLinear-19 and DequantizeLinear-19, whose zero points are 0 for float8).

Left as they are: those of integers, and of float8 in blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.graphs import cast_node, constant_like, give_back, redirect_uses
from parityscope.case.graph import constant_value
from parityscope.operators import QUANTIZERS

if TYPE_CHECKING:
    from parityscope.arithmetic.graphs import Names

FLOAT8 = frozenset(dtype for dtype in ir.DataType if dtype.name.startswith("FLOAT8E") and dtype.name[6:] != "8E8M0")


def is_float8(node: ir.Node) -> bool:
    """Whether a node quantizes to float8, or dequantizes from it, with a scale a tensor or a channel."""
    if (
        node.op_type not in QUANTIZERS
        or node.domain not in {"", "ai.onnx"}
        or node.attributes.get_int("block_size", 0) != 0
    ):
        return False
    value = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    return value is not None and value.type is not None and value.dtype in FLOAT8


def written_out(model: ir.Model, names: Names) -> None:
    """Replaces such nodes of `model`, whose types are inferred, in place."""
    for node in [node for node in model.graph.all_nodes() if is_float8(node)]:
        (_write_quantize if node.op_type == "QuantizeLinear" else _write_dequantize)(node, names)


def without_float8(model: ir.Model, names: Names) -> None:
    """Takes the rounding to float8 of computed values out, in place: what is dequantized is what was quantized.

    Constants keep the numbers that they were rounded to.
    """
    for node in [node for node in model.graph.all_nodes() if is_float8(node) and node.op_type == "DequantizeLinear"]:
        source = node.inputs[0]
        maker = source.producer() if source is not None else None
        origin = maker.inputs[0] if maker is not None and maker.op_type == "QuantizeLinear" else None
        if origin is None or origin.dtype != node.outputs[0].dtype or node.outputs[0].is_graph_output():
            continue
        graph = node.graph
        redirect_uses(list(node.outputs[0].uses()), origin)
        if graph is not None:
            graph.remove(node, safe=True)
        if maker is not None and maker.graph is not None and not maker.outputs[0].uses():
            maker.graph.remove(maker, safe=True)
    written_out(model, names)


def _write_quantize(node: ir.Node, names: Names) -> None:
    value, scale = node.inputs[0], node.inputs[1]
    if value is None or scale is None:
        return
    output = node.outputs[0]
    wide = _cast_to(value, ir.DataType.FLOAT, names)
    divided = _make_float_node(
        "Div", [wide[-1].outputs[0] if wide else value, _scale_for_broadcast(node, scale, value, names)], value, names
    )
    down = ir.Node(
        "",
        "Cast",
        divided.outputs,
        [ir.AttrInt64("to", int(output.dtype or 0)), ir.AttrInt64("saturate", node.attributes.get_int("saturate", 1))],
        num_outputs=1,
        name=node.name,
    )
    down.outputs[0].type, down.outputs[0].shape = output.type, output.shape
    _replace_node(node, [*wide, divided, down])


def _write_dequantize(node: ir.Node, names: Names) -> None:
    value, scale, output = node.inputs[0], node.inputs[1], node.outputs[0]
    if value is None or scale is None:
        return
    held, factor = constant_value(value), constant_value(scale)
    if held is not None and factor is not None and held.dtype in FLOAT8:
        array = held.numpy().astype(np.float32) * _reshape_along_axis(
            node, factor.numpy().astype(np.float32), held.numpy().ndim
        )
        made = constant_like(value, array, names.fresh(value.name, "dequantized"))
        made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
        last = _cast_like(made, output, names, node.name)
        _replace_node(node, [last])
        return
    wide = _cast_to(value, ir.DataType.FLOAT, names)
    product = _make_float_node(
        "Mul", [wide[0].outputs[0], _scale_for_broadcast(node, scale, value, names)], value, names
    )
    _replace_node(node, [*wide, product, _cast_like(product.outputs[0], output, names, node.name)])


def _cast_like(value: ir.Value, like: ir.Value, names: Names, name: str | None) -> ir.Node:
    """`value` with the type of `like`: a Cast, which may have nothing to do."""
    dtype = like.dtype or ir.DataType.FLOAT
    node = cast_node(value, dtype, names.fresh(like.name, "cast"), name or "")
    node.outputs[0].shape = like.shape
    return node


def _cast_to(value: ir.Value, dtype: ir.DataType, names: Names) -> list[ir.Node]:
    if value.dtype == dtype:
        return []
    name = names.fresh(value.name, "wide")
    return [cast_node(value, dtype, name, name)]


def _make_float_node(op_type: str, inputs: list[ir.Value], like: ir.Value, names: Names) -> ir.Node:
    node = ir.Node("", op_type, inputs, num_outputs=1)
    node.outputs[0].name = node.name = names.fresh(like.name, "scaled")
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), like.shape
    return node


def _scale_for_broadcast(node: ir.Node, scale: ir.Value, value: ir.Value, names: Names) -> ir.Value:
    """The scale as float32, in a shape that broadcasts over the value; a computed one is of the whole tensor."""
    tensor = constant_value(scale)
    if tensor is None:
        return scale
    rank = len(value.shape) if value.shape is not None else 0
    array = _reshape_along_axis(node, tensor.numpy().astype(np.float32), rank)
    made = constant_like(scale, array, names.fresh(scale.name, "wide"))
    made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    return made


def _reshape_along_axis(node: ir.Node, scale: np.ndarray, rank: int) -> np.ndarray:
    axis = node.attributes.get_int("axis", 1)
    return (
        scale.reshape([-1 if each == axis % rank else 1 for each in range(rank)])
        if scale.size > 1
        else scale.reshape(())
    )


def _replace_node(node: ir.Node, nodes: list[ir.Node]) -> None:
    """Puts `nodes` in the place of one; the last gives what it gave, under its name."""
    graph, old, new = node.graph, node.outputs[0], nodes[-1].outputs[0]
    if graph is None:
        raise ValueError(f"{node.name} belongs to no graph")
    graph.insert_before(node, nodes)
    redirect_uses(list(old.uses()), new)
    give_back(old, new)
    name, old.name = old.name, None
    graph.remove(node, safe=True)
    new.name = name
