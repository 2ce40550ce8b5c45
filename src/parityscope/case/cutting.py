"""A graph up to the operators that a runtime lacks.

What a runtime lacks is a custom operator: one that is in neither ONNX's schemas nor the model's own functions, and that
the runtime has not been given a library for. The node that holds it (for a body of control flow or a function: the node
around it) is taken out with everything that depends on it. The computed tensors that it would have read are the
*borders*: they become outputs of what is left, so that they are run, compared and judged as the deepest
tensors there are. Branches that do not depend on the node stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import bodies_of_node, closure_of, dependencies_of, node_name
from parityscope.case.model import Model, load_model
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import onnx_ir as ir

Operator = tuple[str, str]  # domain and type; the empty domain is ONNX's own

_NAMED = 3  # nodes named in a reason; the rest are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CutModel:
    """`model` is what can be run: its outputs are those declared ones that are left, then the `borders`.

    `behind` names every value that was taken out, and `skipped` says so for each declared output among them and for the
    rest together.
    """

    model: Model
    borders: tuple[str, ...]
    behind: frozenset[str]
    skipped: tuple[Skip, ...]


def operator_name(operator: Operator) -> str:
    """`com.example::Foo`, as ONNX writes it; the empty domain is written `ai.onnx`."""
    return f"{operator[0] or 'ai.onnx'}::{operator[1]}"


def foreign_operators(model: ir.Model) -> frozenset[Operator]:
    """Every operator, at any depth, that neither ONNX's schemas nor the model's functions define."""
    import onnx.defs

    used = {operator for node in model.graph for operator in _operators_of_node(node, model)}
    return frozenset(one for one in used if not onnx.defs.has(one[1], one[0]))


def cut_model(model: Model, lacking: AbstractSet[Operator], path: Path, fix: str) -> CutModel:
    """Writes what can be run of `model` without the operators `lacking` to `path`.

    Unnamed nodes get the names that they have in the whole graph, so that a site means the same in both.

    Raises:
        ParityError: nothing remains that could be compared; `fix` says how to give the operators.
    """
    graph = model.graph()
    graph.graph.sort()
    name_nodes(graph)
    refused = [node for node in graph.graph if not lacking.isdisjoint(_operators_of_node(node, graph))]
    lost = _nodes_behind(graph, refused)
    gone = {id(value) for node in lost for value in node.outputs}
    kept = [value for value in graph.graph.outputs if id(value) not in gone]
    borders = _border_values(graph, refused, gone, kept)
    if not borders and not any(value.producer() for value in kept):
        why = _reason_of_cut(refused, lacking, graph)
        raise ParityError(f"nothing of {model.path.name} can be compared: all of it is {why}", fix=fix)
    skipped = _skips_of_cut(graph, refused, gone, lost, borders, lacking, fix)
    behind = frozenset(str(value.name) for node in lost for value in node.outputs if value.name)
    graph.graph.outputs.clear()
    graph.graph.outputs.extend([*kept, *borders])
    for node in reversed(lost):
        graph.graph.remove(node)
    _drop_unread(graph)
    return CutModel(
        model=write_graph(graph, path),
        borders=tuple(str(value.name) for value in borders),
        behind=behind,
        skipped=tuple(skipped),
    )


def with_borders(model: Model, cut: CutModel, path: Path) -> Model:
    """`model` whole, with those borders of `cut` that it has as further outputs, written to `path`."""
    graph = model.graph()
    declared = {value.name: value for value in cut.model.outputs if value.name in cut.borders}
    source = {value.name: value for value in cut.model.graph().graph.outputs}
    present = {value.name for value in graph.graph.outputs}
    for node in graph.graph:
        for value in node.outputs:
            if value.name in declared and value.name not in present:
                value.type, value.shape = source[value.name].type, source[value.name].shape
                graph.graph.outputs.append(value)
    return write_graph(graph, path)


def _operators_of_node(node: ir.Node, model: ir.Model) -> Iterator[Operator]:
    """The operator of a node and, at any depth, those of its bodies and of the function that it calls."""
    function = model.functions.get(node.op_identifier())
    if function is None:
        yield ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
    bodies: list[Iterable[ir.Node]] = [] if function is None else [function]
    for body in [*bodies, *bodies_of_node(node)]:
        for inner in body:
            yield from _operators_of_node(inner, model)


def name_nodes(model: ir.Model) -> None:
    """Gives unnamed nodes the names that they have in this graph, so that a site means the same in a part of it."""
    computing = [node for node in model.graph if node.op_type != "Constant"]
    for index, node in enumerate(computing):
        node.name = node_name(node, index)


def _nodes_behind(model: ir.Model, refused: Sequence[ir.Node]) -> list[ir.Node]:
    """The refused nodes and all that depend on them, in topological order."""
    doomed = {id(node) for node in refused}
    gone: set[int] = set()
    found = []
    for node in model.graph:
        if id(node) in doomed or any(id(value) in gone for value in dependencies_of(node)):
            gone.update(id(value) for value in node.outputs)
            found.append(node)
    return found


def _border_values(
    model: ir.Model, refused: Sequence[ir.Node], gone: AbstractSet[int], kept: Sequence[ir.Value]
) -> list[ir.Value]:
    """The computed tensors that refused nodes read and that can be run, with their types."""
    held = {id(value) for value in kept}
    found: dict[int, ir.Value] = {}
    for node in refused:
        for value in dependencies_of(node):
            producer = value.producer()
            computed = producer is not None and producer.graph is model.graph and producer.op_type != "Constant"
            if computed and id(value) not in gone and id(value) not in held:
                found.setdefault(id(value), value)
    _infer_types(model, found.values())
    return [value for value in found.values() if value.dtype is not None]


def _infer_types(model: ir.Model, wanted: Iterable[ir.Value]) -> None:
    """Fills in the types of `wanted` where the file does not say them.

    Exists because exporters need not write the types of intermediate values, and an output must have one.
    """
    import onnx
    import onnx_ir as ir

    untyped = {str(value.name): value for value in wanted if value.dtype is None}
    if not untyped:
        return
    inferred = onnx.shape_inference.infer_shapes(ir.to_proto(model))
    for info in inferred.graph.value_info:
        if info.name in untyped and info.type.WhichOneof("value") == "tensor_type":
            known = ir.from_proto(info)
            untyped[info.name].type, untyped[info.name].shape = known.type, known.shape


def _reason_of_cut(refused: Sequence[ir.Node], lacking: AbstractSet[Operator], model: ir.Model) -> str:
    told = [
        f"{' and '.join(sorted({operator_name(one) for one in _operators_of_node(node, model) if one in lacking}))}"
        f" of node {node.name}"
        for node in refused[:_NAMED]
    ]
    more = f" and of {len(refused) - _NAMED} more nodes" if len(refused) > _NAMED else ""
    return f"behind the custom operator {', '.join(told)}{more}"


def _skips_of_cut(
    model: ir.Model,
    refused: Sequence[ir.Node],
    gone: AbstractSet[int],
    lost: Sequence[ir.Node],
    borders: Sequence[ir.Value],
    lacking: AbstractSet[Operator],
    fix: str,
) -> list[Skip]:
    upto = f"; the graph is compared up to {', '.join(str(value.name) for value in borders)}" if borders else ""
    skips = []
    outputs = [value for value in model.graph.outputs if id(value) in gone]
    for output in outputs:
        above = {id(node) for node in closure_of([output])[0]}
        own = _reason_of_cut([node for node in refused if id(node) in above], lacking, model)
        skips.append(Skip(what=f"output {output.name}", reason=own + upto, fix=fix, asked=True))
    declared = {id(value) for value in outputs}
    inside = sum(1 for node in lost for value in node.outputs if value.name and id(value) not in declared)
    if inside:
        skips.append(
            Skip(
                what=f"{inside} intermediate tensor{'s' if inside > 1 else ''}",
                reason=_reason_of_cut(refused, lacking, model),
                fix=fix,
            )
        )
    return skips


def _drop_unread(model: ir.Model) -> None:
    """Weights that only the removed nodes read would be written to disk for nothing."""
    inputs = {id(value) for value in model.graph.inputs}
    outputs = {id(value) for value in model.graph.outputs}
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and id(value) not in inputs | outputs:
            del model.graph.initializers[name]


def write_graph(graph: ir.Model, path: Path) -> Model:
    """The model that `graph` is, written to `path`; weights that lay outside of its file lie beside the new one."""
    import onnx_ir as ir

    path.parent.mkdir(parents=True, exist_ok=True)
    external = any(
        isinstance(value.const_value, ir.ExternalTensor)
        for one in graph.graphs()
        for value in one.initializers.values()
    )
    # Locations of external data are relative to the file, so the weights that are still read move with it.
    ir.save(graph, path, external_data=f"{path.stem}.data" if external else None)
    return replace(load_model(path), path=path)
