"""Questions about a graph: what can be observed in it, what a node is called, what depends on what.

Everything here takes an `onnx_ir` model, which it may sort and edits no further, and runs nothing. Control flow (If, Loop, Scan)
is one node. `deriving` makes other graphs of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.declaring import scope_of
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    import onnx_ir as ir


# The attributes of Constant, and the element type where it is a number.
_HELD_AS = {
    "value": "",
    "value_int": "INT64",
    "value_ints": "INT64",
    "value_float": "FLOAT",
    "value_floats": "FLOAT",
    "value_string": "",
    "value_strings": "",
}


def computed_values(model: ir.Model) -> list[ir.Value]:
    """Named values of the main graph that nodes compute (Constant nodes left out), in topological order."""
    model.graph.sort()
    return [
        value
        for node in model.graph
        if node.op_type != "Constant"
        for value in node.outputs
        if value.name and not _is_sequence(value)
    ]


def sites_of_values(model: ir.Model) -> dict[str, Site]:
    """A `Site` for every value that `computed_values` gives, by value name."""
    found: dict[str, Site] = {}
    sorted_values = computed_values(model)
    order = {id(node): index for index, node in enumerate(computing_nodes(model))}
    for value in sorted_values:
        node = value.producer()
        if node is None:
            continue
        index = order[id(node)]
        found[str(value.name)] = Site(
            tensor=str(value.name),
            node=node_name(node, index),
            op_type=node.op_type,
            index=index,
            scope=scope_of(node.name or ""),
        )
    return found


def node_name(node: ir.Node, index: int) -> str:
    """The node's own name, or a stable one made of its operator and topological index when it has none."""
    return node.name or f"{node.op_type}#{index}"


def closure_of(wanted: Iterable[ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
    """Every node that `wanted` depend on, and the values without a producer that these read (inputs, initializers)."""
    nodes: dict[int, ir.Node] = {}
    free: dict[int, ir.Value] = {}
    stack = list(wanted)
    while stack:
        value = stack.pop()
        node = value.producer()
        if node is None:
            free.setdefault(id(value), value)
        elif id(node) not in nodes:
            nodes[id(node)] = node
            stack.extend(dependencies_of(node))
    return list(nodes.values()), list(free.values())


class Regions:
    """The regions of a graph that is not edited meanwhile: the nodes between a tensor and observed ones above it."""

    def __init__(self, model: ir.Model) -> None:
        self._known = value_by_name(model)
        self._places = {id(node): place for place, node in enumerate(computing_nodes(model))}

    def of(self, tensor: str, observed: Container[str], besides: Container[str] = ()) -> list[ir.Node]:
        """The nodes between `tensor` and the nearest `observed` tensors above it (but `besides`), in topological order."""
        found: dict[int, ir.Node] = {}
        stack = [self._known[tensor]]
        while stack:
            value = stack.pop()
            node = value.producer()
            name = value.name
            if node is None or id(node) in found or (name in observed and name != tensor and name not in besides):
                continue
            found[id(node)] = node
            stack.extend(dependencies_of(node))
        inside = [node for node in found.values() if id(node) in self._places]
        return sorted(inside, key=lambda node: self._places[id(node)])


def consumers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes that read `value`, each once."""
    return list(dict.fromkeys(node for node, _ in value.uses()))


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Input `index`; None where it is left out, or where a damaged file has fewer inputs than it should."""
    return node.inputs[index] if index < len(node.inputs) else None


def values_before(value: ir.Value | None, moves: Container[str]) -> Iterator[ir.Value]:
    """A value, and while operators that `moves` names made it of their first input, that input, and so on."""
    while value is not None:
        yield value
        node = value.producer()
        value = input_at(node, 0) if node is not None and node.op_type in moves else None


def bodies_of_node(node: ir.Node) -> list[ir.Graph]:
    """The graphs inside a node; empty for all but control flow."""
    return [body for _, body in named_bodies(node)]


def named_bodies(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """The graphs inside a node, each with the name of its attribute ("then_branch")."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type.name == "GRAPH":
            yield attribute.name, attribute.as_graph()
        elif attribute.type.name == "GRAPHS":
            yield from ((attribute.name, body) for body in attribute.as_graphs())


def dependencies_of(node: ir.Node) -> Iterator[ir.Value]:
    """What a node depends on: its inputs, and what the bodies of control flow capture from outside."""
    for value in node.inputs:
        if value is not None:
            yield value
    for body in bodies_of_node(node):
        inside = {id(value) for value in body.inputs} | {id(value) for value in body.initializers.values()}
        inside |= {id(value) for inner in body for value in inner.outputs}
        for inner in body:
            yield from (value for value in dependencies_of(inner) if id(value) not in inside)
        yield from (value for value in body.outputs if id(value) not in inside)


def constant_value(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node's output; None for anything computed."""
    if value is None or value.const_value is not None:
        return None if value is None else value.const_value
    node = value.producer()
    return None if node is None or node.op_type != "Constant" or node.domain else held_tensor(node)


def constant_input(node: ir.Node, index: int) -> np.ndarray | None:
    """Input `index` as an array of its own shape and dtype where it is a parameter; None for anything computed or left out."""
    tensor = constant_value(input_at(node, index))
    return None if tensor is None else np.asarray(tensor.numpy())


def held_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor that a Constant node holds, whichever of its attributes says it; None for a sparse one."""
    name, attribute = next(iter(node.attributes.items()), ("", None))
    if attribute is None or attribute.is_ref() or name not in _HELD_AS:
        return None
    if name == "value":  # not `as_tensor`, which asks whether it follows a protocol: 150 microseconds each
        tensor: ir.TensorProtocol | None = attribute.value if attribute.type.name == "TENSOR" else None
        return tensor
    import onnx_ir as ir

    kind = _HELD_AS[name]
    if not kind:
        texts = np.array(attribute.value, object)
        for place, text in np.ndenumerate(texts):
            texts[place] = text.encode() if isinstance(text, str) else text
        return ir.StringTensor(texts, name=node.outputs[0].name)
    return ir.tensor(attribute.value, dtype=ir.DataType[kind], name=node.outputs[0].name)


def computing_nodes(model: ir.Model) -> list[ir.Node]:
    """The nodes of the main graph in their order, Constant nodes left out: what topological indices count."""
    return [node for node in model.graph if node.op_type != "Constant"]


def value_by_name(model: ir.Model) -> dict[str, ir.Value]:
    """The named values of the main graph: initializers, inputs and what nodes give."""
    graph = model.graph
    known = {str(value.name): value for value in graph.initializers.values()}
    known.update((str(value.name), value) for value in graph.inputs)
    known.update((str(value.name), value) for node in graph for value in node.outputs if value.name)
    return known


def _is_sequence(value: ir.Value) -> bool:
    import onnx_ir as ir

    return isinstance(value.type, ir.SequenceType | ir.OptionalType)
