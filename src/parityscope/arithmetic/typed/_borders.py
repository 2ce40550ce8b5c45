"""Inputs and outputs of a typed model: the same names, and the types that they had."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.graphs import redirect_uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic.typed._writing import Writing

__all__ = ["bypass_idle_casts", "told_apart", "type_outputs"]


def type_outputs(model: ir.Model, names: Sequence[str], writing: Writing) -> None:
    """Gives the outputs their types and their `names`."""
    known = writing.assigning
    graph = model.graph
    for position, name in enumerate(names):
        value = graph.outputs[position]
        if value in known.origin:
            value = writing.casting.as_type(value, known.origin[value])
            graph.outputs[position] = value
        if value.name != name:
            graph.outputs[position] = _value_under_name(graph, value, name, writing)


def bypass_idle_casts(model: ir.Model) -> None:
    """Takes Casts out that have nothing left to do, unless a graph gives back what they give."""
    for node in list(model.graph.all_nodes()):
        source, graph = (node.inputs[0] if node.inputs else None), node.graph
        if node.op_type != "Cast" or node.domain or source is None or graph is None:
            continue
        result = node.outputs[0]
        if source.dtype is not None and source.dtype == result.dtype and not result.is_graph_output():
            redirect_uses(list(result.uses()), source)
            graph.remove(node, safe=True)


def told_apart(model: ir.Model) -> None:
    """Gives nodes that share a name, which ONNX Runtime refuses, names of their own."""
    taken = {node.name for node in model.graph.all_nodes()}
    seen: set[str] = set()
    for index, node in enumerate(model.graph.all_nodes()):
        name = node.name or ""
        if name and name in seen:
            numbers = (f"{name}#{number}" for number in count(index))
            node.name = next(each for each in numbers if each not in taken)
            taken.add(node.name)
        seen.add(name)


def _value_under_name(graph: ir.Graph, value: ir.Value, name: str, writing: Writing) -> ir.Value:
    """The value under `name`, which another one may have had."""
    holder = next((one for node in graph for one in node.outputs if one.name == name), None)
    if holder is not None:
        holder.name = writing.casting.names.fresh(name, "stored")
    if value.producer() is not None and sum(one is value for one in graph.outputs) == 1:
        value.name = name
        return value
    node = ir.Node("", "Identity", [value], num_outputs=1, name=f"typed::{name}")
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
    graph.append(node)
    return node.outputs[0]
