"""Questions about a graph: what can be observed in it, what a node is called, what depends on what.

Everything here takes an `onnx_ir` model, which it may sort and edits no further, and runs nothing. Control flow (If, Loop, Scan)
is one node. `deriving` makes other graphs of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.declaring import scope_of
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    import onnx_ir as ir

__all__ = [
    "Regions",
    "closure_of",
    "computed_values",
    "computing_nodes",
    "constant_value",
    "consumers_of",
    "dependencies_of",
    "node_name",
    "sites_of_values",
    "value_by_name",
]


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


def dependencies_of(node: ir.Node) -> Iterator[ir.Value]:
    """What a node depends on: its inputs, and what the bodies of control flow capture from outside."""
    for value in node.inputs:
        if value is not None:
            yield value
    for attribute in node.attributes.values():
        for body in _bodies_of_attribute(attribute):
            inside = {id(value) for value in body.inputs} | {id(value) for value in body.initializers.values()}
            inside |= {id(value) for inner in body for value in inner.outputs}
            for inner in body:
                yield from (value for value in dependencies_of(inner) if id(value) not in inside)
            yield from (value for value in body.outputs if id(value) not in inside)


def constant_value(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node's output; None for anything computed."""
    import onnx_ir as ir

    if value is None or value.const_value is not None:
        return None if value is None else value.const_value
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain:
        return None
    held = node.attributes.get("value")
    if held is None or held.is_ref() or held.type != ir.AttributeType.TENSOR:
        return ir.convenience.get_const_tensor(value)
    tensor: ir.TensorProtocol = held.value  # the library asks whether it follows a protocol: 150 microseconds each
    return tensor


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


def _bodies_of_attribute(attribute: ir.Attr) -> list[ir.Graph]:
    import onnx_ir as ir

    if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
        return [attribute.as_graph()]
    if attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
        return list(attribute.as_graphs())
    return []


def _is_sequence(value: ir.Value) -> bool:
    import onnx_ir as ir

    return isinstance(value.type, ir.SequenceType | ir.OptionalType)
