"""The network view: what TensorRT makes of an ONNX file, without a GPU and without a run."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.asked import asked_of, requested_of, tell_types_asked
from parityscope.backends.tensorrt.building import Built, build_engine
from parityscope.backends.tensorrt.fates import NodeFate, Wordless, node_fates, wordless_layers
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from parityscope.backends.tensorrt.layers import NetworkTensor
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.logs import EngineLayer, Log

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
    nodes: tuple[NodeFate, ...]
    wordless: tuple[Wordless, ...]
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
        nodes=node_fates(built),
        wordless=wordless_layers(log),
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
