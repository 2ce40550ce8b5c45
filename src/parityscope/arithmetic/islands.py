"""FP32 islands of a mixed-precision graph: where they are, and the graph of an engine that does not honour them.

An island is a connected part of a graph that computes in float32 on what a Cast made of float16 or bfloat16 values: squares,
sums and their like, which do not fit the narrow format. An engine that fuses over the Casts, or takes a precision for a wish,
computes it in the narrow format all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names, add_constant, cast_node, give_back, redirect_uses
from parityscope.case.graph import bodies_of_node, constant_value
from parityscope.light_dataclasses import dataclass
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# What crosses the border of an island, and what makes constants: neither computes.
_NOT_COMPUTING = with_trait("computes nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """The results of an island's nodes, in the graph's order, and the format around it ("f16" or "bf16")."""

    tensors: tuple[str, ...]
    around: str


def find_islands(model: ir.Model) -> tuple[Island, ...]:
    """The islands of the main graph, in its order. Types of values are set as a side effect where there are Casts."""
    if not any(node.op_type == "Cast" for node in model.graph):
        return ()
    infer_types(model)
    wide = [node for node in model.graph if _is_wide(node)]
    found = []
    for group in _connected_groups(wide):
        around = {source for node in group for source in _entered_from(node)}
        if around:
            half = _HALVES[0] if _HALVES[0] in around else _HALVES[1]
            tensors = tuple(str(value.name) for node in group for value in node.outputs if value.name)
            found.append(Island(tensors=tensors, around="f16" if half == _HALVES[0] else "bf16"))
    return tuple(found)


def model_ignoring_islands(model: ir.Model, ignored: Collection[Island]) -> ir.Model:
    """`model`, edited: the nodes of the `ignored` islands compute in the format around them.

    What they read is cast to it, constants are rounded to it, and what others read of them is cast back to float32.
    """
    infer_types(model)
    names = Names(model)
    narrow = {name: _HALVES[0] if each.around == "f16" else _HALVES[1] for each in ignored for name in each.tensors}
    inside = {node for node in model.graph if node.outputs and node.outputs[0].name in narrow}
    for node in list(model.graph):
        if node in inside:
            half = narrow[str(node.outputs[0].name)]
            for place, value in enumerate(node.inputs):
                if value is not None and value.dtype == ir.DataType.FLOAT and value.producer() not in inside:
                    node.replace_input_with(place, _narrow_value(model, node, value, half, names))
    for node in inside:
        half = narrow[str(node.outputs[0].name)]
        for value in node.outputs:
            if value.dtype == ir.DataType.FLOAT:
                _widen_behind(model, node, value, inside, names)
                value.type = ir.TensorType(half)
    return model


def _is_wide(node: ir.Node) -> bool:
    results = [value.dtype for value in node.outputs if value.name]
    return node.op_type not in _NOT_COMPUTING and not bodies_of_node(node) and ir.DataType.FLOAT in results


def _entered_from(node: ir.Node) -> Iterator[ir.DataType]:
    """The narrow types that Casts make what a node reads of."""
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None and producer.op_type == "Cast" and producer.inputs[0] is not None:
            dtype = producer.inputs[0].dtype
            if dtype in _HALVES:
                yield dtype


def _connected_groups(nodes: list[ir.Node]) -> list[list[ir.Node]]:
    """Groups of nodes that hand float32 values to each other, each in the graph's order."""
    above = {node: node for node in nodes}  # each node's group, by a chain of nodes that ends in itself

    def root(node: ir.Node) -> ir.Node:
        while above[node] is not node:
            above[node] = node = above[above[node]]
        return node

    for node in nodes:
        for value in node.inputs:
            producer = value.producer() if value is not None and value.dtype == ir.DataType.FLOAT else None
            if producer in above:
                above[root(node)] = root(producer)
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        groups.setdefault(root(node), []).append(node)
    return list(groups.values())


def _narrow_value(model: ir.Model, before: ir.Node, value: ir.Value, half: ir.DataType, names: Names) -> ir.Value:
    """`value` in the narrow format: a rounded constant, or what a new Cast in front of `before` makes of it."""
    constant = constant_value(value)
    if constant is not None:
        with np.errstate(over="ignore"):
            array = constant.numpy().astype(half.numpy())
        return add_constant(model.graph, array, names.fresh(value.name, "narrow"))
    return _insert_cast(model, value, half, names, "narrow", before=before)


def _widen_behind(model: ir.Model, node: ir.Node, value: ir.Value, inside: Collection[ir.Node], names: Names) -> None:
    """Lets readers outside of the island read `value` through a Cast to float32; an output keeps its name."""
    uses = [(user, place) for user, place in value.uses() if user not in inside]
    is_output = value.is_graph_output()
    if not uses and not is_output:
        return
    name = str(value.name)
    if is_output:
        value.name = names.fresh(name, "narrow")
    wide = _insert_cast(model, value, ir.DataType.FLOAT, names, "wide", after=node, source=name)
    if is_output:
        wide.name = name
        give_back(value, wide)
    redirect_uses(uses, wide)


def _insert_cast(
    model: ir.Model,
    value: ir.Value,
    dtype: ir.DataType,
    names: Names,
    suffix: str,
    *,
    before: ir.Node | None = None,
    after: ir.Node | None = None,
    source: str = "",
) -> ir.Value:
    name = names.fresh(source or value.name, suffix)
    made = cast_node(value, dtype, name, name)
    if before is not None:
        model.graph.insert_before(before, made)
    elif after is not None:
        model.graph.insert_after(after, made)
    return made.outputs[0]
