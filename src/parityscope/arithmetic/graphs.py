"""Small things that every rewriting of a graph needs: fresh names, constants, rerouting.

Values, nodes and graphs are those of `onnx_ir`; bodies are the graphs inside If, Loop and Scan.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import bodies_of_node
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx_ir as ir


# Not SequenceMap, whose bodies take elements of sequences, which keep their type.
_DIVIDED = of_kind("control flow")


class Names:
    """Gives names that no value of a model has."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {value.name for value in all_values(model)}
        self._numbers: dict[str, Iterator[int]] = {}  # by what was wanted: those that were not tried yet

    def fresh(self, name: str | None, suffix: str) -> str:
        """`<name>::<suffix>`, with a number behind it where that is taken."""
        found = wanted = f"{name}::{suffix}"
        numbers = self._numbers.setdefault(wanted, count(2))
        while found in self._taken:
            found = f"{wanted}{next(numbers)}"
        self._taken.add(found)
        return found


def all_values(model: ir.Model) -> Iterator[ir.Value]:
    """Every named value of the main graph and of all bodies, inputs before initializers before what nodes make."""
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from (value for value in node.outputs if value.name)


def divided_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """If, Loop and Scan, inside each other too: nodes whose bodies can be of several formats, since Casts may stand in them."""
    for node in graph:
        if node.op_type in _DIVIDED and node.domain in {"", "ai.onnx"}:
            yield node
            for body in bodies_of_node(node):
                yield from divided_nodes(body)


def add_constant(graph: ir.Graph, array: np.ndarray, name: str) -> ir.Value:
    """A new initializer of `graph` with the shape and dtype of `array`; an initializer's or input's name gets a number."""
    import onnx_ir as ir

    given = {value.name for value in graph.inputs}
    free = next(one for one in _numbered_names(name) if one not in graph.initializers and one not in given)
    tensor = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=free)
    made = ir.Value(name=free, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(made)
    return made


def constant_like(value: ir.Value, array: np.ndarray, name: str) -> ir.Value:
    """A new constant called `name` with the elements of `array`, of the same kind and in the same graph as `value`.

    An initializer for an initializer, else the output of a Constant node; the dtype and shape of `array` are kept.

    Raises:
        ValueError: `value` belongs to no graph, or is no constant.
    """
    import onnx_ir as ir

    graph = value.graph
    if graph is None:
        raise ValueError(f"{value.name} belongs to no graph")
    if value.is_initializer():
        return add_constant(graph, array, name)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array, name=name))], num_outputs=1)
    node.outputs[0].name = name
    node.outputs[0].type = value.type
    node.outputs[0].shape = value.shape
    producer = value.producer()
    if producer is None:
        raise ValueError(f"{value.name} is not a constant")
    producer.append(node)
    return node.outputs[0]


def cast_node(value: ir.Value, dtype: ir.DataType, name: str, node_name: str = "") -> ir.Node:
    """A Cast of `value` whose output is called `name`; it stands in no graph yet."""
    import onnx_ir as ir

    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], num_outputs=1, name=node_name or None)
    made = node.outputs[0]
    made.name, made.type, made.shape = name, ir.TensorType(dtype), value.shape
    return node


def drop_if_unread(value: ir.Value) -> None:
    """Takes a constant out of its graph that nothing reads any more, and that no caller gives or gets."""
    graph, node = value.graph, value.producer()
    if graph is None or value.uses() or value.is_graph_output() or value.is_graph_input():
        return
    if node is None:
        graph.initializers.pop(str(value.name), None)
    elif node.op_type == "Constant":
        graph.remove(node)


def set_input(model: ir.Model, node: ir.Node, position: int, array: np.ndarray, name: str) -> None:
    """Makes a new constant the input of `node` at `position`; other readers of the old one keep it.

    The constant has the shape and dtype of `array`; an old one that nothing reads any more goes.
    """
    value = add_constant(model.graph, array, name)
    old = node.inputs[position] if position < len(node.inputs) else None
    if position >= len(node.inputs):
        node.resize_inputs(position + 1)
    node.replace_input_with(position, value)
    if old is not None:
        drop_if_unread(old)


def redirect_uses(uses: Iterable[tuple[ir.Node, int]], replacement: ir.Value) -> None:
    """Makes the inputs `uses` (node, index) read `replacement`."""
    for node, index in uses:
        node.replace_input_with(index, replacement)


def give_back(value: ir.Value, replacement: ir.Value) -> None:
    """Makes the graph that gives back `value`, if it does, give back `replacement`."""
    graph = value.graph
    if graph is not None and value.is_graph_output():
        for position, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[position] = replacement


def prepend_nodes(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    """Puts `nodes` before all others."""
    if len(graph):
        graph.insert_before(graph[0], nodes)
    else:
        graph.extend(nodes)


def _numbered_names(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name}.{number}"
