"""Questions about a graph, and the derived graphs that localization runs.

Everything here takes an `onnx_ir` model (a fresh one from `Model.graph()`, which it may edit) and runs nothing.

* `values` / `sites` : what can be observed, in topological order;
* `mark_outputs`     : the same graph giving back other values;
* `sever`            : every consumer of an observed tensor reads a graph input instead (the severed replay);
* `inject`           : chosen tensors get an error added to them through a graph input.

Control flow (If, Loop, Scan) is one node; values captured by its bodies are severed there too. Values made by
Constant nodes are part of the model and are never severed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from parityscope.case.declaring import scope_of
from parityscope.errors import ParityError
from parityscope.records import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import onnx_ir as ir

__all__ = [
    "Severed",
    "closure",
    "computing",
    "constant_value",
    "consumers",
    "dependencies",
    "inject",
    "mark_outputs",
    "node_name",
    "region",
    "sever",
    "sites",
    "subgraph",
    "values",
]

SEVERED_SUFFIX = "::candidate"
DELTA_SUFFIX = "::delta"
_CLEAN_SUFFIX = "::clean"


def values(model: ir.Model) -> list[ir.Value]:
    """Named values of the main graph that nodes compute (Constant nodes left out), in topological order."""
    model.graph.sort()
    return [
        value
        for node in model.graph
        if node.op_type != "Constant"
        for value in node.outputs
        if value.name and not _is_sequence(value)
    ]


def sites(model: ir.Model) -> dict[str, Site]:
    """A `Site` for every value that `values` gives, by value name."""
    found: dict[str, Site] = {}
    sorted_values = values(model)
    order = {id(node): index for index, node in enumerate(computing(model))}
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


def mark_outputs(model: ir.Model, names: Sequence[str]) -> None:
    """Makes the values called `names` the outputs of the graph, in this order.

    Raises:
        ParityError: the main graph has no such value.
    """
    known = _by_name(model)
    missing = [name for name in names if name not in known]
    if missing:
        raise ParityError(
            f"the graph has no value {missing[0]!r}", fix="take a name from `parityscope run MODEL --all-tensors`"
        )
    model.graph.outputs.clear()
    model.graph.outputs.extend(known[name] for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Severed:
    """A graph whose consumers of observed tensors read inputs named `<tensor>::candidate`.

    `reads` gives, for each observed tensor, the severed inputs that computing it again needs, and `nodes` the names
    of the nodes that this runs: the region between observed tensors.
    """

    model: ir.Model
    reads: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, tuple[str, ...]]


def sever(model: ir.Model, observed: Mapping[str, tuple[str, int]]) -> Severed:
    """Severs `model` at every tensor of `observed`: name -> (numpy dtype name, rank).

    The dtype and rank are those of the reference's value. The model is edited in place. A tensor that is also a
    graph output keeps its name there, so that its replayed value can be asked for by name.
    """
    import onnx_ir as ir

    known = _by_name(model)
    order = {id(node): index for index, node in enumerate(computing(model))}
    for name, (dtype, rank) in observed.items():
        value = known[name]
        severed = ir.Value(
            name=name + SEVERED_SUFFIX, shape=ir.Shape([None] * rank), type=ir.TensorType(_data_type(dtype))
        )
        # Only uses by nodes are rerouted: as a graph output the value stays what the reference computes.
        for user, index in list(value.uses()):
            user.replace_input_with(index, severed)
        model.graph.inputs.append(severed)
    reads: dict[str, tuple[str, ...]] = {}
    nodes: dict[str, tuple[str, ...]] = {}
    for name in observed:
        members, inputs = closure([known[name]])
        reads[name] = tuple(
            str(value.name).removesuffix(SEVERED_SUFFIX) for value in inputs if str(value.name).endswith(SEVERED_SUFFIX)
        )
        own = sorted((node for node in members if id(node) in order), key=lambda node: order[id(node)])
        nodes[name] = tuple(node_name(node, order[id(node)]) for node in own)
    return Severed(model=model, reads=reads, nodes=nodes)


def subgraph(model: ir.Model, outputs: Sequence[str]) -> ir.Model:
    """A view of only what `outputs` need, ready to be run; it shares nodes and weights with `model`."""
    import onnx_ir as ir

    known = _by_name(model)
    wanted = [known[name] for name in outputs]
    members, inputs = closure(wanted)
    keep = {id(node) for node in members}
    free = {id(value) for value in inputs}
    initializers = [value for value in model.graph.initializers.values() if id(value) in free]
    weights = {id(value) for value in initializers}
    view = ir.GraphView(
        [value for value in model.graph.inputs if id(value) in free and id(value) not in weights],
        wanted,
        nodes=[node for node in model.graph if id(node) in keep],
        initializers=initializers,
        opset_imports=dict(model.opset_imports),
        name=model.graph.name,
    )
    # ir.Model asks for a Graph and serializes any GraphProtocol.
    return ir.Model(cast("ir.Graph", view), ir_version=model.ir_version or 0, functions=list(model.functions.values()))


def inject(model: ir.Model, tensors: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """Adds to each tensor of `tensors` (name -> numpy dtype, rank) an error read from a new graph input.

    Gives the input's name by tensor name. A scalar zero fed there changes nothing (Add broadcasts it); for booleans
    the input is exclusive-or'ed instead. Outputs keep their names.
    """
    import onnx_ir as ir

    known = _by_name(model)
    inputs = {}
    for name, (dtype, _) in tensors.items():
        value = known[name]
        delta = ir.Value(name=name + DELTA_SUFFIX, shape=None, type=ir.TensorType(_data_type(dtype)))
        changed = ir.Value(name=name, type=value.type, shape=value.shape)
        value.name = name + _CLEAN_SUFFIX
        users = list(value.uses())
        producer = value.producer()
        node = ir.Node("", "Xor" if dtype == "bool" else "Add", [value, delta], outputs=[changed])
        if producer is None:
            model.graph.insert_before(model.graph[0], node)
        else:
            model.graph.insert_after(producer, node)
        for user, index in users:
            user.replace_input_with(index, changed)
        for position, output in enumerate(model.graph.outputs):
            if output is value:
                model.graph.outputs[position] = changed
        model.graph.inputs.append(delta)
        inputs[name] = name + DELTA_SUFFIX
    return inputs


def closure(wanted: Iterable[ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
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
            stack.extend(dependencies(node))
    return list(nodes.values()), list(free.values())


def region(model: ir.Model, tensor: str, observed: Iterable[str]) -> list[ir.Node]:
    """The nodes between `tensor` and the nearest `observed` tensors above it, in topological order."""
    known = _by_name(model)
    border = {id(known[name]) for name in observed if name in known and name != tensor}
    found: dict[int, ir.Node] = {}
    stack = [known[tensor]]
    while stack:
        value = stack.pop()
        node = value.producer()
        if node is None or id(node) in found or id(value) in border:
            continue
        found[id(node)] = node
        stack.extend(dependencies(node))
    return [node for node in computing(model) if id(node) in found]


def consumers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read `value`, each once."""
    return list(dict.fromkeys(node for node, _ in value.uses()))


def dependencies(node: ir.Node) -> Iterator[ir.Value]:
    """What a node depends on: its inputs, and what the bodies of control flow capture from outside."""
    for value in node.inputs:
        if value is not None:
            yield value
    for attribute in node.attributes.values():
        for body in _bodies(attribute):
            inside = {id(value) for value in body.inputs} | {id(value) for value in body.initializers.values()}
            inside |= {id(value) for inner in body for value in inner.outputs}
            for inner in body:
                yield from (value for value in dependencies(inner) if id(value) not in inside)
            yield from (value for value in body.outputs if id(value) not in inside)


def constant_value(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node's output; None for anything computed."""
    import onnx_ir as ir

    return None if value is None else ir.convenience.get_const_tensor(value)


def computing(model: ir.Model) -> list[ir.Node]:
    """The nodes of the main graph in their order, Constant nodes left out: what topological indices count."""
    return [node for node in model.graph if node.op_type != "Constant"]


def _by_name(model: ir.Model) -> dict[str, ir.Value]:
    graph = model.graph
    known = {str(value.name): value for value in graph.initializers.values()}
    known.update((str(value.name), value) for value in graph.inputs)
    known.update((str(value.name), value) for node in graph for value in node.outputs if value.name)
    return known


def _bodies(attribute: ir.Attr) -> list[ir.Graph]:
    import onnx_ir as ir

    if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
        return [attribute.as_graph()]
    if attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
        return list(attribute.as_graphs())
    return []


def _is_sequence(value: ir.Value) -> bool:
    import onnx_ir as ir

    return isinstance(value.type, ir.SequenceType | ir.OptionalType)


def _data_type(dtype: str) -> ir.DataType:
    import onnx_ir as ir

    from parityscope.trace import numpy_dtype

    return ir.DataType.STRING if dtype.startswith("str") else ir.DataType.from_numpy(numpy_dtype(dtype))
