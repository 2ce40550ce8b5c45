"""Small edits of a region's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.graphs import add_constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    Attribute = int | float | str | Sequence[int]

__all__ = [
    "insert_before",
    "insert_behind",
    "read_constant_instead",
    "set_attribute",
    "substitute_result",
]


def set_attribute(node: ir.Node, name: str, value: Attribute) -> None:
    """Sets the attribute `name`."""
    if isinstance(value, str):
        node.attributes[name] = ir.AttrString(name, value)
    elif isinstance(value, int):
        node.attributes[name] = ir.AttrInt64(name, value)
    elif isinstance(value, float):
        node.attributes[name] = ir.AttrFloat32(name, value)
    else:
        node.attributes[name] = ir.AttrInt64s(name, list(value))


def read_constant_instead(model: ir.Model, node: ir.Node, index: int, array: np.ndarray) -> None:
    """Makes input `index` of `node` the parameter `array`, of any shape and dtype that ONNX has."""
    value = add_constant(model.graph, array, f"{node.outputs[0].name}::{index}")
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)


def insert_before(
    node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Attribute] | None = None
) -> ir.Value:
    """A new node right before `node`; gives its output."""
    made = ir.Node("", op_type, inputs, num_outputs=1)
    for name, value in (attributes or {}).items():
        set_attribute(made, name, value)
    made.outputs[0].name = f"{node.outputs[0].name}::{op_type}{_count_nodes(node)}"
    node.prepend(made)
    return made.outputs[0]


def substitute_result(model: ir.Model, node: ir.Node, value: ir.Value) -> None:
    """Lets everything that read the first output of `node` read `value`; the node goes if nothing needs it."""
    old = node.outputs[0]
    for user, index in list(old.uses()):
        if user is not value.producer():
            user.replace_input_with(index, value)
    for position, output in enumerate(model.graph.outputs):
        if output is old:
            model.graph.outputs[position] = value


def insert_behind(
    model: ir.Model,
    node: ir.Node,
    op_type: str,
    others: Sequence[ir.Value | None] = (),
) -> ir.Value:
    """A new node on the first output of `node` (and `others`), which everything reads from now on instead."""
    old = node.outputs[0]
    made = ir.Node("", op_type, [old, *others], num_outputs=1)
    made.outputs[0].name = f"{old.name}::{op_type}{_count_nodes(node)}"
    node.append(made)
    substitute_result(model, node, made.outputs[0])
    return made.outputs[0]


def _count_nodes(node: ir.Node) -> int:
    """The number of nodes in the graph: grows with every insertion, so that it makes names fresh."""
    if node.graph is None:
        raise ValueError(f"{node.op_type} belongs to no graph")
    return len(node.graph)
