"""Parses an ONNX file and builds an engine, with everything that parser and builder said.

The builder's log goes through a logger of our own into a file, because it is long, and is read back by the log reader: what a
build tells is told by the same code as what a log tells. Nothing here needs a GPU with TensorRT-RTX.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends._tensorrt.layers import (
    NetworkLayer,
    NetworkTensor,
    network_inputs,
    network_layers,
    network_tensor,
)
from parityscope.backends._tensorrt.logger import logging_to
from parityscope.backends._tensorrt.naming import Renamed, named
from parityscope.errors import ParityError
from parityscope.logs import Log, read_log
from parityscope.logs._records import Unparsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.backends._tensorrt.packages import Package

__all__ = ["Built", "build"]


_WEAK_FLAGS = MappingProxyType({"f16": "FP16", "bf16": "BF16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What parser and builder made of a file. `plan` is None when nothing was built, and `problem` says why."""

    renamed: Renamed
    log: Log
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    refused: tuple[Unparsed, ...]
    plan: bytes | None
    problem: str
    seconds: float


def build(
    path: Path,
    package: Package,
    *,
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    tf32: bool = False,
    precision: str = "",
    log_file: Path | None = None,
) -> Built:
    """Parses the model at `path` and builds an engine for exactly `shapes`; `log_file` keeps the builder's verbose log.

    With a `precision` ("f16", "bf16") the network is weakly typed and the builder may use it: TensorRT 8 to 10 only.

    Raises:
        ParityError: the file is no ONNX model, or a dynamic input has no shape in `shapes`.
    """
    started = time.perf_counter()
    renamed = named(path, shapes)
    wanted = _Wanted(path=path, package=package, shapes=shapes, tf32=tf32, precision=precision)
    with tempfile.TemporaryDirectory(prefix="parityscope-trt-") as scratch:
        kept = log_file or Path(scratch, "build.log")
        with kept.open("w", encoding="utf-8") as lines, logging_to(package.module, lines) as logger:
            made = _make(wanted, renamed, logger)
        log = read_log(kept)
    refused = made.refused or log.refused
    return Built(
        renamed=renamed,
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
    shapes: Mapping[str, Sequence[int]]
    tf32: bool
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    refused: tuple[Unparsed, ...]
    plan: bytes | None
    problem: str


def _make(wanted: _Wanted, renamed: Renamed, logger: Any) -> _Made:
    trt = wanted.package.module
    builder = trt.Builder(logger)
    network = builder.create_network(_flags(wanted.package, wanted.precision))
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse(renamed.message.SerializeToString(), str(wanted.path))
    layers = tuple(network_layers(network))
    plan, problem = None, "the parser refused the model"
    if parsed:
        serialized = builder.build_serialized_network(network, _configured(builder, network, wanted))
        plan = bytes(memoryview(serialized)) if serialized is not None else None
        problem = "" if plan is not None else "the builder refused the network"
    return _Made(
        inputs=tuple(network_tensor(each) for each in network_inputs(network)),
        outputs=tuple(network_tensor(network.get_output(index)) for index in range(network.num_outputs)),
        layers=layers,
        refused=tuple(_refusals(parser)),
        plan=plan,
        problem=problem,
    )


def _flags(package: Package, precision: str) -> int:
    flags = package.module.NetworkDefinitionCreationFlag
    wanted = 0
    if package.strongly_typed and not precision and hasattr(flags, "STRONGLY_TYPED"):
        wanted |= 1 << int(flags.STRONGLY_TYPED)
    if package.numbers[0] < 10 and hasattr(flags, "EXPLICIT_BATCH"):
        wanted |= 1 << int(flags.EXPLICIT_BATCH)
    return wanted


def _configured(builder: Any, network: Any, wanted: _Wanted) -> Any:
    trt, shapes = wanted.package.module, wanted.shapes
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if wanted.tf32:
        config.set_flag(trt.BuilderFlag.TF32)
    else:
        config.clear_flag(trt.BuilderFlag.TF32)
    if wanted.precision in _WEAK_FLAGS:
        config.set_flag(getattr(trt.BuilderFlag, _WEAK_FLAGS[wanted.precision]))
    profile = builder.create_optimization_profile()
    dynamic = [tensor for tensor in network_inputs(network) if -1 in tuple(tensor.shape)]
    missing = [tensor.name for tensor in dynamic if tensor.name not in shapes]
    if missing:
        raise ParityError(
            f"input {missing[0]!r} has dynamic dimensions and no shape",
            where=str(wanted.path),
            fix=" ".join(f"--shapes {name}:1x3x224x224" for name in missing) + " (with sizes that you use)",
        )
    for tensor in dynamic:
        profile.set_shape(tensor.name, *[tuple(shapes[tensor.name])] * 3)
    if dynamic:
        config.add_optimization_profile(profile)
    return config


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
