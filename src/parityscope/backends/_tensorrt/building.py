"""Parses an ONNX file and builds an engine, with everything that parser and builder said.

The builder's log goes through a logger of our own into a file, because it is long, and is read back by the log reader: what a
build tells is told by the same code as what a log tells. Nothing here needs a GPU with TensorRT-RTX.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends._tensorrt.configuring import configuration, keep_timing_cache, network_flags
from parityscope.backends._tensorrt.layers import (
    NetworkLayer,
    NetworkTensor,
    network_inputs,
    network_layers,
    network_tensor,
)
from parityscope.backends._tensorrt.logger import logging_to
from parityscope.backends._tensorrt.marking import Marked, Marks, mark, registered
from parityscope.backends._tensorrt.naming import Renamed, named
from parityscope.backends._tensorrt.options import Options
from parityscope.backends._tensorrt.plugins import load_plugins
from parityscope.backends._tensorrt.precisions import ask_for
from parityscope.backends._tensorrt.profiles import check_names, sizes
from parityscope.backends._tensorrt.settling import Settled, settle
from parityscope.errors import ParityError
from parityscope.logs import Log, read_log
from parityscope.logs._records import Unparsed
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends._tensorrt.api import Builder, Network
    from parityscope.backends._tensorrt.packages import Package

__all__ = ["Built", "build"]

_PLAIN = Options()
_TYPES = {"f32": "FLOAT", "f16": "HALF", "bf16": "BF16", "int8": "INT8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What parser and builder made of a file. `plan` is None when nothing was built, and `problem` says why.

    `renamed` are the nodes of the file, `settled` what was decided before TensorRT saw them (None: nothing was), `marked` the
    tensors that the engine shows besides its outputs.
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


def build(
    path: Path, package: Package, options: Options = _PLAIN, *, marks: Marks | None = None, log_file: Path | None = None
) -> Built:
    """Parses the model at `path` and builds an engine; `log_file` keeps the builder's verbose log.

    Raises:
        ParityError: the file is no ONNX model, a dynamic input has no shape, or an option cannot be met.
    """
    started = time.perf_counter()
    renamed = named(path, sizes(options.shapes))
    check_names(options.shapes, renamed.inputs)
    settled = None
    if options.settle:
        settled = settle(renamed.message, sizes(options.shapes), options.values, folder=path.parent)
    wanted = _Wanted(path=path, package=package, options=options, marks=marks)
    with scratch_folder("trt") as scratch:
        kept = log_file or Path(scratch, "build.log")
        with kept.open("w", encoding="utf-8", buffering=1) as lines, logging_to(package.module, lines) as logger:
            made = _make(wanted, renamed, logger, kept)
        log = read_log(kept)
    refused = made.refused or log.refused
    return Built(
        renamed=renamed,
        settled=settled,
        marked=made.marked,
        log=log,
        inputs=made.inputs,
        outputs=made.outputs,
        layers=made.layers,
        refused=refused,
        plan=made.plan,
        problem=made.problem and _why(made.problem, refused, log),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    path: Path
    package: Package
    options: Options
    marks: Marks | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    marked: Marked
    refused: tuple[Unparsed, ...]
    plan: bytes | None
    problem: str


def _make(wanted: _Wanted, renamed: Renamed, logger: Any, log: Path) -> _Made:
    trt, options = wanted.package.module, wanted.options
    builder: Builder = trt.Builder(logger)
    load_plugins(builder.get_plugin_registry(), options.plugins)
    network: Network = builder.create_network(network_flags(options, wanted.package))
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse(renamed.message.SerializeToString(), str(wanted.path))
    inputs = tuple(network_tensor(each) for each in network_inputs(network))
    layers = tuple(network_layers(network))
    plan, problem, marked = None, "the parser refused the model", Marked()
    if parsed:
        if options.layers:
            types = {name: getattr(trt.DataType, word) for name, word in _TYPES.items() if hasattr(trt.DataType, word)}
            ask_for((network.get_layer(index) for index in range(network.num_layers)), options.layers, types)
        try:
            config = configuration(builder, inputs, options, wanted.package)
        except ParityError as error:
            raise ParityError(error.problem, where=error.where or str(wanted.path), fix=error.fix) from None
        if wanted.marks is not None:
            logger.sink.flush()
            with log.open(encoding="utf-8") as lines:
                marked = mark(network, wanted.marks, registered(lines))
        serialized = builder.build_serialized_network(network, config)
        plan = bytes(memoryview(serialized)) if serialized is not None else None
        problem = "" if plan is not None else "the builder refused the network"
        if plan is not None:
            keep_timing_cache(config, options)
    return _Made(
        inputs=inputs,
        outputs=tuple(network_tensor(network.get_output(index)) for index in range(network.num_outputs)),
        layers=layers,
        marked=marked,
        refused=tuple(_refusals(parser)),
        plan=plan,
        problem=problem,
    )


def _refusals(parser: Any) -> list[Unparsed]:
    """The nodes that the parser refused, by its own error records (8.6 and newer have the node's name in them)."""
    found = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        name, operator = (getattr(error, part, None) for part in ("node_name", "node_operator"))
        found.append(
            Unparsed(
                node=(name() if name else "") or f"node {error.node()}",
                operator=(operator() if operator else ""),
                reason=" ".join(error.desc().split()),
            )
        )
    return found


def _why(problem: str, refused: Sequence[Unparsed], log: Log) -> str:
    """The problem with the reason that the parser or the log gives."""
    if refused:
        node = refused[0]
        return f"{problem}: {node.node}{f' ({node.operator})' if node.operator else ''}: {node.reason}"
    errors = [line.text for line in log.unexplained if line.severity == "E"]
    errors += [noted.text for noted in log.noted if noted.meaning.role == "cause"]
    return f"{problem}: {errors[0]}" if errors else problem
