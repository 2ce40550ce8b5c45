"""Small edits of a region's graph.

The arithmetic that a stretch is computed in, by its name: what another process is told of a variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from parityscope.arithmetic.graphs import add_constant
from parityscope.hypotheses.arithmetic import RegionContext as ArithmeticContext
from parityscope.hypotheses.arithmetic import Variant, known_hypotheses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Attribute = int | float | str | Sequence[int]
    from parityscope.hypotheses.stretch import StretchContext

__all__ = [
    "insert_before",
    "insert_behind",
    "read_constant_instead",
    "set_attribute",
    "substitute_result",
    "variant_of",
]


def variant_of(context: StretchContext, name: str, words: str) -> Variant:
    """The variant of the hypothesis `name` that is told in `words`, for the last node of a stretch; FP32 without a name.

    Raises:
        KeyError: there is none.
    """
    if not name:
        return Variant(words="FP32")
    last = context.nodes[context.stretch[-1]]
    graph = onnx.GraphProto(name="stretch", node=[context.nodes[index] for index in context.stretch])
    made = {output for node in graph.node for output in node.output}
    free = {read for node in graph.node for read in node.input if read} - made
    graph.initializer.extend(
        onnx.numpy_helper.from_array(context.constants[read], read)
        for read in sorted(free)
        if read in context.constants and context.constants[read].dtype != object
    )
    held = {one.name for one in graph.initializer}
    graph.input.extend(onnx.ValueInfoProto(name=read) for read in sorted(free - held))
    graph.output.extend([onnx.ValueInfoProto(name=context.output)])
    opsets = [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in context.opsets.items()]
    model = ir.from_proto(onnx.ModelProto(ir_version=context.ir_version, graph=graph, opset_import=opsets))
    node = next(one for one in model.graph if any(value.name in last.output for value in one.outputs))
    nothing = np.zeros(context.candidate[0].shape)
    asked = ArithmeticContext(model=model, candidate=nothing, replayed=nothing, value=lambda _: nothing)
    return next(
        (variant for variant in known_hypotheses()[name].variants(node, asked) if variant.words == words),
        Variant(words="FP32"),
    )


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
