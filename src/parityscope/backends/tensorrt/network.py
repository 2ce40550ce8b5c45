"""The network view: what TensorRT makes of an ONNX file, without a GPU and without a run.

What became of each ONNX node in an engine: every node is accounted for, with the evidence for it.

* **kernel**: a layer of the engine names the node in its metadata.
* **absorbed**: no kernel names it, but the region that was handed to the compiler contains it, or layers of the network were made
  for it: it moves data, or became part of the kernels around it (those of the nearest nodes before and after it).
* **folded**: everything it computes follows from constants and shapes, so it was computed while building.
* **removed**: it hands its input on (Identity, Dropout), or nothing reads its output.
* **refused**: the parser refused it, or nothing was built.

The first that applies holds, but folded comes before absorbed. What was decided before TensorRT saw the model (`settling.py`)
is folded or removed with the reason that was given there.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.arithmetic.standard import SHAPE_READERS
from parityscope.backends.tensorrt.asked import asked_of, requested_of, tell_types_asked
from parityscope.backends.tensorrt.building import Built, build_engine
from parityscope.backends.tensorrt.naming import describe_named_model
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.logs import layer_of
from parityscope.operators import of_kind, with_trait
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.tensorrt.layers import NetworkTensor
    from parityscope.backends.tensorrt.naming import NamedNode, Renamed
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.logs import EngineLayer, Log

_Fate = Literal["kernel", "absorbed", "folded", "removed", "refused"]
# What they give depends on the shape of their input alone.
# What they give is their input, when a network infers.
_HANDS_ON = with_trait("passes on") - of_kind("conversion")
# Layers of the engine that order streams and compute nothing.
_ORDERING = frozenset({"signal", "wait", "barrier", "jmp", "cjmp", "memset"})
_FORMATS = {
    "Float": "f32",
    "Half": "f16",
    "BFloat16": "bf16",
    "BF16": "bf16",
    "FP8": "f8e4m3",
    "Fp8": "f8e4m3",
    "Int8": "int8",
}
_WEIGHT = {"f8e4m3": 0, "f16": 1, "bf16": 2, "tf32": 3, "f32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeFate:
    """A node, what became of it, the layers of the engine that show it, and the reason in words."""

    node: str
    op_type: str
    index: int
    fate: _Fate
    layers: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wordless:
    """A layer of the engine without an ONNX node: what it does, and the nodes of the layers before and after it."""

    layer: str
    kind: str
    does: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def _node_fates(built: Built) -> tuple[_NodeFate, ...]:
    """What became of every node of the file, in the order of the file."""
    if built.settled is None:
        return _fates_of_seen_nodes(built, built.renamed)
    gone = built.settled.gone
    seen = {fate.node: fate for fate in _fates_of_seen_nodes(built, describe_named_model(built.settled.message))}
    return tuple(
        _make_fate(node, gone[node.name].fate, (), gone[node.name].reason)
        if node.name in gone
        else replace(seen[node.name], index=node.index)
        for node in built.renamed.nodes
    )


def _fates_of_seen_nodes(built: Built, renamed: Renamed) -> tuple[_NodeFate, ...]:
    """What became of the nodes that TensorRT saw."""
    nodes = renamed.nodes
    if built.plan is None:
        refused = {each.node: each.reason for each in built.refused}
        return tuple(_make_fate(node, "refused", (), refused.get(node.name, "nothing was built")) for node in nodes)
    kernels = _kernels_by_node(built.log)
    regions = {node for members in built.log.foreign.values() for node in members}
    made = {layer.node for layer in built.layers if not layer.helper} | set(built.log.made.values())
    folded = _folded_nodes(renamed)
    around = _Around(renamed, kernels)
    found = []
    for node in nodes:
        if node.name in kernels:
            found.append(_make_fate(node, "kernel", kernels[node.name], "named by the engine's layers"))
        elif node.name in folded:
            found.append(_make_fate(node, "folded", (), folded[node.name]))
        elif node.name in regions:
            found.append(_make_fate(node, "absorbed", around(node), "in the compiled region; no kernel names it"))
        elif not around.is_read(node):
            found.append(_make_fate(node, "removed", (), "nothing reads what it computes"))
        elif node.op_type in _HANDS_ON:
            found.append(_make_fate(node, "removed", (), "it hands its input on"))
        elif node.name in made:
            found.append(_make_fate(node, "absorbed", around(node), "in the network; no layer of the engine names it"))
        else:
            found.append(_make_fate(node, "absorbed", around(node), "the parser made it a part of its neighbours"))
    return tuple(found)


def _wordless_layers(log: Log) -> tuple[_Wordless, ...]:
    """Layers of the engine that name no ONNX node, with the nodes of the layers that feed and read them."""
    writers: dict[str, EngineLayer] = {}
    readers: dict[str, list[EngineLayer]] = {}
    for layer in log.layers:
        writers.update((tensor.name, layer) for tensor in layer.outputs)
        for tensor in layer.inputs:
            readers.setdefault(tensor.name, []).append(layer)
    found = []
    for layer in log.layers:
        if layer.nodes:
            continue
        before = [node for tensor in layer.inputs if tensor.name in writers for node in writers[tensor.name].nodes]
        after = [node for tensor in layer.outputs for reader in readers.get(tensor.name, ()) for node in reader.nodes]
        found.append(
            _Wordless(
                layer=layer.name,
                kind=layer.kind,
                does=_describe_layer(layer),
                before=tuple(dict.fromkeys(before)),
                after=tuple(dict.fromkeys(after)),
            )
        )
    return tuple(found)


def _describe_layer(layer: EngineLayer) -> str:
    if layer.kind in _ORDERING:
        return "orders the work of streams and branches"
    types = [{tensor.dtype for tensor in side} for side in (layer.inputs, layer.outputs)]
    if types[0] != types[1]:
        return "changes the type"
    return "moves data: another layout, a copy or a slice"


def _kernels_by_node(log: Log) -> dict[str, tuple[str, ...]]:
    """The engine's layers that each node is in."""
    found: dict[str, list[str]] = {}
    for layer in log.layers:
        for node in layer.nodes:
            found.setdefault(node, []).append(layer.name)
    for node, layer in layer_of(log).items():
        found.setdefault(node, [layer.name])
    return {node: tuple(dict.fromkeys(names)) for node, names in found.items()}


def _folded_nodes(renamed: Renamed) -> dict[str, str]:
    """Nodes whose outputs follow from constants, or from constants and the shapes of inputs; with the reason."""
    constant = set(renamed.initializers) | {""}
    shaped: set[str] = set()
    reasons = {}
    for node in renamed.nodes:
        if node.op_type in SHAPE_READERS:
            shaped.update(node.outputs)
            reasons[node.name] = "shapes are known when the engine is built, or computed apart from the data"
        elif all(name in constant for name in node.inputs):
            constant.update(node.outputs)
            reasons[node.name] = "computed from constants while building"
        elif all(name in constant or name in shaped for name in node.inputs):
            shaped.update(node.outputs)
            reasons[node.name] = "computed from shapes and constants, apart from the data"
    return reasons


@dataclass(frozen=True, slots=True)
class _GraphReaders:
    makers: Mapping[str, NamedNode]
    readers: Mapping[str, tuple[NamedNode, ...]]


class _Around:
    """The kernels of the nearest nodes before and after a node that have one."""

    __slots__ = ("_graph", "_kernels", "_outputs")

    def __init__(self, renamed: Renamed, kernels: Mapping[str, tuple[str, ...]]) -> None:
        makers: dict[str, NamedNode] = {}
        readers: dict[str, list[NamedNode]] = {}
        for node in renamed.nodes:
            makers.update((name, node) for name in node.outputs)
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        self._graph = _GraphReaders(makers, {name: tuple(each) for name, each in readers.items()})
        self._kernels = kernels
        self._outputs = renamed.outputs

    def is_read(self, node: NamedNode) -> bool:
        """Whether a node, or the caller of the graph or of a body, reads an output of `node`."""
        return any(name in self._graph.readers or name in self._outputs for name in node.outputs)

    def __call__(self, node: NamedNode) -> tuple[str, ...]:
        before = self._walk(node, lambda each: [self._graph.makers.get(name) for name in each.inputs])
        after = self._walk(
            node, lambda each: [one for name in each.outputs for one in self._graph.readers.get(name, ())]
        )
        return tuple(dict.fromkeys((*before, *after)))

    def _walk(self, node: NamedNode, step: object) -> list[str]:
        found: list[str] = []
        seen = {node.name}
        front = [node]
        while front:
            following = []
            for each in front:
                for other in step(each):  # type: ignore[operator] # one of the two functions above
                    if other is None or other.name in seen:
                        continue
                    seen.add(other.name)
                    if other.name in self._kernels:
                        found.extend(self._kernels[other.name])
                    else:
                        following.append(other)
            front = following
        return found


def _make_fate(node: NamedNode, fate: _Fate, layers: tuple[str, ...], reason: str) -> _NodeFate:
    return _NodeFate(node=node.name, op_type=node.op_type, index=node.index, fate=fate, layers=layers, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkView:
    """What TensorRT makes of a file.

    `inputs` are in the order of the network, `engine_inputs` in that of the engine (the order in which a program that binds by
    position must feed it) and `file_inputs` in that of the file. `helpers` counts the layers that the parser added for no
    node of their own (constants, broadcasts, casts), `unmapped` are constants that no layer reads, and `types` are the types
    that the network's layers write. `fixed` are inputs that became constants, `settled` the message that TensorRT saw instead
    of the file's (None: the file's), `executed` the engine's layers with what their nodes were asked for.
    """

    version: str
    file_inputs: tuple[str, ...]
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    engine_inputs: tuple[str, ...]
    nodes: tuple[_NodeFate, ...]
    wordless: tuple[_Wordless, ...]
    layers: Mapping[str, int]
    helpers: int
    unmapped: tuple[str, ...]
    types: Mapping[str, int]
    engine_layers: tuple[EngineLayer, ...]
    plan_nbytes: int
    seconds: float
    problem: str
    log: Log
    skipped: tuple[Skip, ...]
    fixed: tuple[str, ...] = ()
    settled: Any = None
    executed: ExecutedGraph = field(default_factory=lambda: ExecutedGraph(layers=()))


def network_view(
    path: Path, package: Package, options: TensorrtOptions | None = None, *, log_file: Path | None = None
) -> NetworkView:
    """Parses and builds the model at `path`.

    Raises:
        ParityError: the file is no ONNX model, a dynamic input has no shape, or an option cannot be met.
    """
    options = options or TensorrtOptions()
    return view_of(build_engine(path, package, options, log_file=log_file), package, options)


def view_of(built: Built, package: Package, options: TensorrtOptions) -> NetworkView:
    """The view of what was built with `options`."""
    log = built.log
    asked = asked_of(built.renamed.message, options)
    types: Counter[str] = Counter(dtype for layer in built.layers for dtype in layer.types)
    return NetworkView(
        version=f"{package.module.__name__} {package.version}",
        file_inputs=tuple(name for name in built.renamed.inputs if name not in options.values),
        inputs=built.inputs,
        outputs=built.outputs,
        engine_inputs=tuple(tensor.name for tensor in log.tensors if tensor.mode == "input"),
        nodes=_node_fates(built),
        wordless=_wordless_layers(log),
        layers=Counter(layer.kind for layer in built.layers),
        helpers=sum(layer.helper for layer in built.layers),
        unmapped=tuple(layer.name for layer in built.layers if not layer.node),
        types=types,
        engine_layers=log.layers,
        plan_nbytes=len(built.plan or b""),
        seconds=built.seconds,
        problem=built.problem,
        log=log,
        skipped=tuple(_list_skips(built)),
        fixed=built.settled.fixed if built.settled else (),
        settled=built.settled.message if built.settled else None,
        executed=described_by(options, asked)(log.layers),
    )


def described_by(
    options: TensorrtOptions, asked: Mapping[str, str]
) -> Callable[[Sequence[EngineLayer]], ExecutedGraph]:
    """What tells an engine that was built with `options`, whose nodes were asked for the formats `asked`, by its layers."""
    requested = requested_of(asked, options.precision)

    def told(layers: Sequence[EngineLayer]) -> ExecutedGraph:
        graph = tell_types_asked(executed_graph(layers, requested), asked)
        # TF32 is no type of an engine: it is how products of FP32 may be rounded, and not every kernel's name tells.
        if options.tf32 and requested == "f32":
            executed = "tf32" if graph.executed == "f32" else graph.executed
            return replace(graph, requested="tf32", executed=executed)
        return graph

    return told


def executed_graph(
    layers: Sequence[EngineLayer], requested: str, seconds: Mapping[str, float] = MappingProxyType({})
) -> ExecutedGraph:
    """The engine's layers as an `ExecutedGraph`.

    What it computes in is the lowest float type that any of them writes, or rounds to. `seconds` are the layers' times by name,
    where a profile was taken.
    """
    written = [next((_FORMATS[each] for each in layer.types if each in _FORMATS), "") for layer in layers]
    found = [
        ExecutedLayer(
            name=layer.name,
            layer_type=layer.kind,
            nodes=layer.nodes,
            # NVIDIA's kernels that round to TF32 have it in their names, and write FP32.
            precision="tf32" if stored == "f32" and "tf32" in layer.tactic.lower() else stored,
            stored=stored,
            kernel=layer.tactic,
            seconds=seconds.get(layer.name),
        )
        for layer, stored in zip(layers, written, strict=True)
    ]
    held = {layer.precision for layer in found if layer.nodes and layer.precision in _WEIGHT}
    executed = min(held, key=lambda name: _WEIGHT[name], default=requested)
    return ExecutedGraph(layers=tuple(found), requested=requested, executed=executed)


def _list_skips(built: Built) -> list[Skip]:
    found = list(built.log.skipped) if built.plan is not None else []
    if built.renamed.shared_symbols:
        names = ", ".join(repr(name) for name in built.renamed.shared_symbols)
        found.append(
            Skip(
                what="dimensions that share a symbol",
                reason=f"{names} stands for several dimensions, to which TensorRT gives one size; they were given names of "
                "their own for this build",
                fix="give dimensions of different sizes different names in the ONNX file, or TensorRT refuses its profile",
            )
        )
    return found
