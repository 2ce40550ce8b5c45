"""The derived graphs that localization runs.

Everything here takes an `onnx_ir` model (a fresh one from `Model.graph()`, which it edits) and runs nothing.

* `mark_outputs` : the same graph giving back other values;
* `sever`        : every consumer of an observed tensor reads a graph input instead (the severed replay);
* `subgraph`     : only what some values need;
* `inject`       : chosen tensors get an error added to them through a graph input.

Control flow (If, Loop, Scan) is one node; values captured by its bodies are severed there too. Values made by
Constant nodes are part of the model and are never severed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from parityscope.case.graph import closure, computing, node_name, value_by_name
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

__all__ = ["DELTA_SUFFIX", "SEVERED_SUFFIX", "Severed", "inject", "mark_outputs", "sever", "subgraph"]

SEVERED_SUFFIX = "::candidate"

DELTA_SUFFIX = "::delta"

_CLEAN_SUFFIX = "::clean"
# Types that ONNX Runtime has no Add for on a CPU, and in which the error is added instead.
_SUMMED_AS = {
    **dict.fromkeys(("int8", "int16", "uint8", "uint16", "uint32", "uint64"), "int64"),
    **dict.fromkeys(("bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32"),
}


def mark_outputs(model: ir.Model, names: Sequence[str]) -> None:
    """Makes the values called `names` the outputs of the graph, in this order.

    Raises:
        ParityError: the main graph has no such value.
    """
    known = value_by_name(model)
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

    known = value_by_name(model)
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

    known = value_by_name(model)
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

    known = value_by_name(model)
    inputs = {}
    for name, (dtype, _) in tensors.items():
        value = known[name]
        delta = ir.Value(name=name + DELTA_SUFFIX, shape=None, type=ir.TensorType(_data_type(dtype)))
        changed = ir.Value(name=name, type=value.type, shape=value.shape)
        value.name = name + _CLEAN_SUFFIX
        users = list(value.uses())
        producer = value.producer()
        nodes = _sum(value, delta, changed, dtype)
        if producer is None:
            model.graph.insert_before(model.graph[0], nodes)
        else:
            model.graph.insert_after(producer, nodes)
        for user, index in users:
            user.replace_input_with(index, changed)
        for position, output in enumerate(model.graph.outputs):
            if output is value:
                model.graph.outputs[position] = changed
        model.graph.inputs.append(delta)
        inputs[name] = name + DELTA_SUFFIX
    return inputs


def _sum(value: ir.Value, delta: ir.Value, changed: ir.Value, dtype: str) -> list[ir.Node]:
    """The nodes that make `changed` of a value and its error; integers wrap around."""
    import onnx_ir as ir

    if dtype not in _SUMMED_AS:
        return [ir.Node("", "Xor" if dtype == "bool" else "Add", [value, delta], outputs=[changed])]
    wide, narrow = (ir.AttrInt64("to", int(_data_type(each))) for each in (_SUMMED_AS[dtype], dtype))
    nodes = [ir.Node("", "Cast", [each], [wide], num_outputs=1) for each in (value, delta)]
    nodes.append(ir.Node("", "Add", [node.outputs[0] for node in nodes], num_outputs=1))
    for place, node in enumerate(nodes):
        node.outputs[0].name = f"{delta.name}::{place}"
    return [*nodes, ir.Node("", "Cast", [nodes[-1].outputs[0]], [narrow], outputs=[changed])]


def _data_type(dtype: str) -> ir.DataType:
    import onnx_ir as ir

    from parityscope.trace import numpy_dtype

    return ir.DataType.STRING if dtype.startswith("str") else ir.DataType.from_numpy(numpy_dtype(dtype))
