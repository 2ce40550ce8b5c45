"""ONNX Runtime's executed graph: from the optimized model that it saves, and from its own record of who runs which node.

ONNX Runtime writes the graph that it runs when it is asked to (`SessionOptions.optimized_model_filepath`). A node that
stands for several of the original keeps the name of the last value among them, so that the nodes between its inputs and
its output in the original are what was fused. Nodes in a blocked layout (domain com.microsoft.nchwc) give values with new
names and are called after the old one, `<value>_nchwc` (nchwc_transformer.cc); a ReorderOutput behind them gives the old
value back, with the activation that was fused meanwhile. Nodes that give back no value of the original (a Reorder, a Transpose
that moved) name no nodes.

Which execution provider a node was given to is recorded before nodes are fused (`session.record_ep_graph_assignment_info`,
ONNX Runtime 1.24 and newer), by the node's name; nodes without a name are known where all of their type have one provider.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.element_types import infer_types
from parityscope.backends.onnxruntime_sessions import OPTIMIZATION_LEVELS, SILENT
from parityscope.case.graph import Regions, sites_of_values
from parityscope.case.model import read_graph
from parityscope.custom_operators import libraries_for_session
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.records import Site

    Providers = Mapping[tuple[str, str], str]  # (node's name, operator) -> provider

_PRECISIONS = {"FLOAT": "f32", "FLOAT16": "f16", "BFLOAT16": "bf16", "DOUBLE": "f64"}
_HALVES = ("f16", "bf16")
# Operators that move, convert or make data; they say nothing about the arithmetic.
_PASSIVE = frozenset(
    "Cast Concat ConstantOfShape Expand Flatten Gather Identity MemcpyFromHost MemcpyToHost Pad ReorderInput ReorderOutput "
    "Reshape Shape Slice Split Squeeze Tile Transpose Unsqueeze".split()
)
_BLOCKED = "com.microsoft.nchwc"
_BLOCKED_SUFFIX = "_nchwc"
_BACK = "ReorderOutput"


def executed_by_onnxruntime(
    model: Model,
    *,
    optimization: str = "all",
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    custom_ops: str = "",
) -> ExecutedGraph:
    """What ONNX Runtime makes of `model`. It costs one more session, which is thrown away.

    Raises:
        ParityError: the runtime refuses the model.
    """
    with scratch_folder("run") as folder:
        path = Path(folder) / "optimized.onnx"
        # Weights of any size go beside the graph, which alone is read here.
        session = save_optimized(
            model, path, optimization=optimization, providers=providers, custom_ops=custom_ops, weights="weights.bin"
        )
        return executed_from(model.graph(), read_graph(path), _providers_by_node(session))


def save_optimized(
    model: Model,
    path: Path,
    *,
    optimization: str = "all",
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    custom_ops: str = "",
    weights: str = "",
) -> Any:
    """Writes the graph that ONNX Runtime makes of `model`, with its `weights` in a file of their own where that is named.

    Returns:
        The session that it is of.

    Raises:
        ParityError: the runtime refuses the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, OPTIMIZATION_LEVELS[optimization])
    options.log_severity_level = SILENT  # it warns that a saved model fits this machine alone
    options.intra_op_num_threads = 1  # nothing is run
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for library in libraries_for_session(custom_ops):
        options.register_custom_ops_library(library)
    options.optimized_model_filepath = str(path)
    if weights:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    try:
        return ort.InferenceSession(str(model.path), options, providers=list(providers))
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise ParityError(
            f"ONNX Runtime cannot save the graph that it runs: {' '.join(str(error).split())[:400]}",
            where=str(model.path),
            fix="check that plain ONNX Runtime runs this model",
        ) from error


def executed_from(original: ir.Model, optimized: ir.Model, providers: Providers | None = None) -> ExecutedGraph:
    """The executed graph of `original`, of which `optimized` is what ONNX Runtime saved (its types are inferred).

    `executed` is the lowest float format in which a node computes, "" where that is not the whole truth: a graph of 16-bit
    floats without a kernel for them is computed in FP32 on rounded weights, and one of integers in neither.
    """
    infer_types(original)
    infer_types(optimized)
    places = sites_of_values(original)
    named = {(site.node, site.op_type): tensor for tensor, site in reversed(places.items())}  # the first result of each
    ends = {id(node): _values_node_ends_in(node, places, named) for node in optimized.graph}
    computed = {name for names in ends.values() for name in names}
    regions = Regions(original)
    ended: set[str] = set()
    layers: dict[int, ExecutedLayer] = {}
    for node in optimized.graph:
        if node.op_type == "Constant":
            continue
        known = [name for name in ends[id(node)] if name not in ended]
        ended.update(known)
        members = {each: None for name in known for each in regions.of(name, computed, known)}
        above = [layers[id(one)] for value in node.inputs if value and (one := value.producer()) and id(one) in layers]
        layers[id(node)] = ExecutedLayer(
            name=node.name or (known[0] if known else node.op_type),
            layer_type=node.op_type,
            nodes=tuple(dict.fromkeys(_original_node_name(each, places) for each in members)),
            # A node of the runtime's own is like what it reads: it has no schema, and nobody gave it to a provider.
            precision=_node_precision(node) or next((layer.precision for layer in above), ""),
            kernel=f"{node.domain or 'ai.onnx'}.{node.op_type}",
            provider=_provider_of_nodes([*members, node], providers or {})
            or next((layer.provider for layer in above), ""),
        )
    return ExecutedGraph(layers=tuple(layers.values()), executed=_executed_precision([*layers.values()], original))


def _values_node_ends_in(node: ir.Node, places: Mapping[str, Site], named: Mapping[tuple[str, str], str]) -> list[str]:
    """The values of the original that an executed node ends in; `named` holds the first one of each node there."""
    known = [str(value.name) for value in node.outputs if value.name in places]
    if known:
        return known
    behind = [str(user.outputs[0].name) for value in node.outputs for user, _ in value.uses() if user.op_type == _BACK]
    name = node.name or ""
    stem = name.rpartition(_BLOCKED_SUFFIX)[0] if node.domain == _BLOCKED else ""
    return [one for one in (*behind, stem, named.get((name, node.op_type), "")) if one in places][:1]


def _original_node_name(node: ir.Node, places: Mapping[str, Site]) -> str:
    value = next((value for value in node.outputs if value.name in places), None)
    return (node.name or "") if value is None else str(places[str(value.name)].node)


def _node_precision(node: ir.Node) -> str:
    for value in (*node.outputs, *node.inputs):
        name = "" if value is None or value.dtype is None else value.dtype.name
        if name in _PRECISIONS:
            return _PRECISIONS[name]
    dtype = node.outputs[0].dtype if node.outputs else None
    return "" if dtype is None else dtype.name.lower()


def _executed_precision(layers: Sequence[ExecutedLayer], original: ir.Model) -> str:
    computing = {layer.precision for layer in layers if layer.layer_type not in _PASSIVE}
    half = next((name for name in _HALVES if name in computing), "")
    if half:
        return half
    stored = {value.dtype.name for node in original.graph for value in node.inputs if value is not None and value.dtype}
    plain = not stored & {"FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT4", "UINT4"}
    return "f32" if "f32" in computing and plain else ""


def _providers_by_node(session: Any) -> dict[tuple[str, str], str]:
    """Who runs each node; an empty name, or an empty operator too, stands for all where all are run by the same."""
    tell = getattr(session, "get_provider_graph_assignment_info", None)
    found = {} if tell is None else dict(_assigned_providers(tell()))
    by_operator: dict[str, set[str]] = defaultdict(set)
    for (_, operator), provider in found.items():
        by_operator[operator].add(provider)
    by_operator[""] = set(found.values())
    return {**found, **{("", kind): next(iter(names)) for kind, names in by_operator.items() if len(names) == 1}}


def _assigned_providers(subgraphs: Sequence[Any]) -> Iterator[tuple[tuple[str, str], str]]:
    for number, subgraph in enumerate(subgraphs):
        for node in subgraph.get_nodes():
            # Nodes without a name are told apart, so that none stands for all.
            yield (node.name or f"unnamed {number}", node.op_type), subgraph.ep_name


def _provider_of_nodes(nodes: Sequence[ir.Node], providers: Providers) -> str:
    """Who runs these nodes: one of them is enough, because only nodes of one provider are fused."""
    by_name = [(node.name, node.op_type) for node in nodes if node.name]
    by_operator = [("", node.op_type) for node in nodes]
    return next((providers[key] for key in (*by_name, *by_operator, ("", "")) if key in providers), "")
