"""Parses an ONNX file and builds an engine, with everything that parser and builder said.

The builder's log goes through a logger of our own into a file, because it is long, and is read back by the log reader: what a
build tells is told by the same code as what a log tells. Nothing here needs a GPU with TensorRT-RTX.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.configuring import configure_builder, keep_timing_cache, network_flags
from parityscope.backends.tensorrt.layers import (
    NetworkLayer,
    NetworkTensor,
    network_inputs,
    network_layers,
    network_tensor,
)
from parityscope.backends.tensorrt.logger import logging_to
from parityscope.backends.tensorrt.marking import (
    Marked,
    Marks,
    mark_tensors,
    names_floats_first,
    registered_tensor_names,
    take_most,
    without_refused,
)
from parityscope.backends.tensorrt.naming import Renamed, name_all_nodes
from parityscope.backends.tensorrt.options import TensorrtOptions
from parityscope.backends.tensorrt.plugins import load_plugins, register_standard_plugins
from parityscope.backends.tensorrt.precisions import ask_for
from parityscope.backends.tensorrt.profiles import check_names, usual_shapes
from parityscope.backends.tensorrt.reasons import explain_failure
from parityscope.backends.tensorrt.settling import Settled, settle_model
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.logs import Log, read_log
from parityscope.logs.records import Unparsed
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.backends.tensorrt.api import Builder, NetworkDefinition
    from parityscope.backends.tensorrt.packages import Package

_PLAIN = TensorrtOptions()
_TYPES = {"f32": "FLOAT", "f16": "HALF", "bf16": "BF16", "int8": "INT8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What parser and builder made of a file. `plan` is None when nothing was built, and `problem` says why.

    `renamed` are the nodes of the file, `settled` what was decided before TensorRT saw them (None: nothing was), `marked` the
    tensors that the engine shows besides its outputs. `fix` is what to do about the problem, where its reason is known.
    """

    renamed: Renamed
    settled: Settled | None
    marked: Marked
    log: Log
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    refused: tuple[Unparsed, ...]
    plan: bytes | None
    problem: str
    seconds: float
    fix: str = ""


def build_engine(
    path: Path,
    package: Package,
    options: TensorrtOptions = _PLAIN,
    *,
    marks: Marks | None = None,
    log_file: Path | None = None,
) -> Built:
    """Parses the model at `path` and builds an engine; `log_file` keeps the builder's verbose log.

    Raises:
        ParityError: the file is no ONNX model, a dynamic input has no shape, or an option cannot be met.
    """
    started = time.perf_counter()
    renamed = name_all_nodes(path, usual_shapes(options.shapes))
    check_names(options.shapes, renamed.inputs)
    settled = None
    if options.settle:
        settled = settle_model(renamed.message, usual_shapes(options.shapes), options.values, folder=path.parent)
    wanted = _Wanted(path=path, package=package, options=options, marks=marks)
    with scratch_folder("trt") as scratch:
        kept = log_file or Path(scratch, "build.log")
        with kept.open("w", encoding="utf-8", buffering=1) as lines, logging_to(package.module, lines) as logger:
            made = _make_engine(wanted, renamed, logger, kept)
        # A build that says nothing is no damaged log.
        log = read_log(kept) if kept.stat().st_size else Log(path=kept, nbytes=0, lines=0, tool="")
        refused = made.refused or log.refused
        means, fix = _reason_in(kept, refused) if made.problem else ("", "")
    problem = made.problem and _describe_refusal(f"{made.problem}{f' ({means})' if means else ''}", refused, log)
    return Built(
        renamed=renamed,
        settled=settled,
        marked=made.engine.marked if made.engine else Marked(),
        log=log,
        inputs=made.inputs,
        outputs=made.outputs,
        layers=made.layers,
        refused=refused,
        plan=made.engine.plan if made.engine else None,
        problem=problem,
        seconds=time.perf_counter() - started,
        fix=fix,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    path: Path
    package: Package
    options: TensorrtOptions
    marks: Marks | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """A network and its parser, which must outlive it; `taken` says whether the parser took the whole file."""

    network: NetworkDefinition
    parser: Any
    taken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """A plan, what it was marked to show, and its outputs."""

    plan: bytes
    marked: Marked
    outputs: tuple[NetworkTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    refused: tuple[Unparsed, ...]
    engine: _Engine | None
    problem: str


def _make_engine(wanted: _Wanted, renamed: Renamed, logger: Any, log: Path) -> _Made:
    builder: Builder = wanted.package.module.Builder(logger)
    register_standard_plugins(wanted.package.module, logger)
    load_plugins(builder.get_plugin_registry(), wanted.options.plugins)

    def parse() -> _Parsed:
        return _parse_network(builder, wanted, renamed, logger)

    parsed = parse()
    inputs = tuple(network_tensor(each) for each in network_inputs(parsed.network))
    layers = tuple(network_layers(parsed.network))
    engine, problem = None, "the parser refused the model"
    if parsed.taken:
        logger.sink.flush()
        with log.open(encoding="utf-8") as lines:
            tensors = registered_tensor_names(lines)
        # Marks cannot be taken back in every version: each set of them after the first needs a network of its own.
        networks = itertools.chain([parsed], iter(parse, None))

        def attempt(marks: Marks | None) -> _Engine | None:
            return _build_engine(builder, next(networks).network, marks, tensors, inputs, wanted)

        engine = _most_marked(attempt, parsed.network, wanted.marks, tensors)
        problem = "" if engine else "the builder refused the network"
    return _Made(
        inputs=inputs,
        outputs=engine.outputs if engine else _network_outputs(parsed.network),
        layers=layers,
        refused=tuple(_nodes_refused(parsed.parser, renamed.message.graph.node)),
        engine=engine,
        problem=problem,
    )


def _parse_network(builder: Builder, wanted: _Wanted, renamed: Renamed, logger: Any) -> _Parsed:
    trt, options = wanted.package.module, wanted.options
    network: NetworkDefinition = builder.create_network(network_flags(options, wanted.package))
    parser = trt.OnnxParser(network, logger)
    taken = parser.parse(renamed.message.SerializeToString(), str(wanted.path))
    if taken and options.layers:
        types = {name: getattr(trt.DataType, word) for name, word in _TYPES.items() if hasattr(trt.DataType, word)}
        ask_for((network.get_layer(index) for index in range(network.num_layers)), options.layers, types)
    return _Parsed(network=network, parser=parser, taken=taken)


def _most_marked(
    attempt: Callable[[Marks | None], _Engine | None],
    network: NetworkDefinition,
    marks: Marks | None,
    tensors: Mapping[str, str],
) -> _Engine | None:
    """The engine that shows most of what `marks` asks for; what the builder refuses to show is told as missing.

    Where it refuses to show what lies between kernels, tensors are marked by name.
    """
    if marks is None:
        return attempt(None)
    if marks.way == "unfused" and (engine := attempt(marks)):
        return engine
    by_name = replace(marks, way="debug") if marks.way == "unfused" else marks
    most = take_most(
        lambda names: attempt(replace(by_name, names=tuple(names)) if names else None),
        names_floats_first(network, marks, tensors),
    )
    return _without_marks(most.built, most.left)


def _without_marks(engine: _Engine | None, left: Sequence[str]) -> _Engine | None:
    return replace(engine, marked=without_refused(engine.marked, left)) if engine else None


def _build_engine(
    builder: Builder,
    network: NetworkDefinition,
    marks: Marks | None,
    tensors: Mapping[str, str],
    inputs: Sequence[NetworkTensor],
    wanted: _Wanted,
) -> _Engine | None:
    try:
        config = configure_builder(builder, inputs, wanted.options, wanted.package)
    except ParityError as error:
        raise ParityError(error.problem, where=error.where or str(wanted.path), fix=error.fix) from None
    marked = mark_tensors(network, marks, tensors) if marks else Marked()
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        return None
    keep_timing_cache(config, wanted.options)
    return _Engine(plan=bytes(memoryview(serialized)), marked=marked, outputs=_network_outputs(network))


def _network_outputs(network: NetworkDefinition) -> tuple[NetworkTensor, ...]:
    return tuple(network_tensor(network.get_output(index)) for index in range(network.num_outputs))


def _nodes_refused(parser: Any, nodes: Sequence[Any]) -> list[Unparsed]:
    """The nodes that the parser refused, by its own error records; before 9 they have the node's place in the file alone."""
    found = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        place = error.node()
        named = nodes[place] if 0 <= place < len(nodes) else None
        name, operator = (getattr(error, part, None) for part in ("node_name", "node_operator"))
        found.append(
            Unparsed(
                node=(name() if name else named.name if named is not None else "") or f"node {place}",
                operator=operator() if operator else named.op_type if named is not None else "",
                reason=" ".join(error.desc().split()),
            )
        )
    return found


def _reason_in(log: Path, refused: Sequence[Unparsed]) -> tuple[str, str]:
    """(what the errors of a build mean, what to do), where that is known."""
    means, fix = explain_failure(each.reason for each in refused)
    if means:
        return means, fix
    for severity in ("[E]", "[W]"):
        with log.open(encoding="utf-8", errors="replace") as lines:
            means, fix = explain_failure(line for line in lines if severity in line)
        if means:
            return means, fix
    return "", ""


def _describe_refusal(problem: str, refused: Sequence[Unparsed], log: Log) -> str:
    """The problem with the reason that the parser or the log gives."""
    if refused:
        node = refused[0]
        return f"{problem}: {node.node}{f' ({node.operator})' if node.operator else ''}: {node.reason}"
    errors = [line.text for line in log.unexplained if line.severity == "E"]
    errors += [noted.text for noted in log.noted if noted.meaning.role == "cause"]
    return f"{problem}: {errors[0]}" if errors else problem
