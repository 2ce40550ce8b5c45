"""OpenVINO on the CPU: a real reduced-precision engine that every laptop has.

**What runs.** The file, compiled with `INFERENCE_PRECISION_HINT` set to the target's precision. The hint is only a hint:
a CPU without AVX512-FP16 executes `f16` in bfloat16 if it has AVX512-BF16 or AMX, else in float32. What really ran is
read from the compiled model (`get_runtime_model`): every executed layer tells its precision, its kernel and the ONNX
nodes fused into it. That is the `ExecutedGraph`.

**What can be observed.** A tensor that is marked as an output cannot be fused over. By default (`observe=layers`) only
the last tensor of each executed layer is marked, which leaves the fused layers as they were, and is read in the format in which
the layer writes it (reading it in float32 would change the layer's precision); `observe=all` marks every tensor that
was asked for. What marking changes at the outputs is measured by whoever captures.

**A file of its own** may be ONNX or an IR (`model=model.xml`, with its `.bin` beside it). The IR runs as it is, and is compared
as ONNX that computes the same (`openvino_ir/`).

Names: OpenVINO's ONNX reader keeps value names as tensor names and node names as friendly names; a layer lists the
friendly names fused into it in `originalLayersNames`.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends import Backend, Capture, Session, probe_of_module
from parityscope.backends.openvino_ir.reading import ENDING, first_line, read_openvino_file
from parityscope.backends.openvino_marks import bearable_marks, mark_outputs
from parityscope.backends.targets import one_of, threads_of, with_option
from parityscope.errors import ParityError
from parityscope.installed import Arithmetic
from parityscope.records import ExecutedGraph, ExecutedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.installed import Machine
    from parityscope.records import Skip, Target

_ELEMENT_TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16"}
_PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "f32": "f32", "f16": "f16", "bf16": "bf16"}
# Layers that move or hold data; they say nothing about the arithmetic.
_PASSIVE = {"Const", "Input", "Output", "Reorder", "Reshape", "Transpose", "Split", "Concatenation", "Convert"}


def _tell_processor(ov: Any) -> dict[str, str]:
    core = ov.Core()
    capabilities = ", ".join(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    return {"cpu": core.get_property("CPU", "FULL_DEVICE_NAME").strip(), "capabilities": capabilities}


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    import openvino as ov

    observe = one_of(target, "observe", ("layers", "all"), "layers")
    precision = target.precision or "f32"
    core = ov.Core()
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _ELEMENT_TYPES[precision], "PERFORMANCE_HINT": "LATENCY"}
    if threads := threads_of(target):
        settings["INFERENCE_NUM_THREADS"] = threads
    source = read_openvino_file(core, model.file)
    declared = len(source.outputs)
    # Inputs of an IR are in its order, and may have no names.
    given: Sequence[Any] = range(len(model.inputs)) if model.source else [value.name for value in model.inputs]
    names = {value.name: index for index, value in enumerate(model.outputs)}
    absent: list[Skip] = []
    captured: dict[str, int] = {}
    executed = None
    if capture.tensors:
        wanted: Sequence[str] = capture.tensors
        if observe == "layers":
            from parityscope.arithmetic.fusion.following import split_borders

            executed, written = _undisturbed_graph(
                (model.file, model.path), model.sha256, precision, tuple(settings.items())
            )
            wanted, absent = split_borders(executed, written, capture.tensors, model.sites)
        stored = {name: written[name] if observe == "layers" else "" for name in wanted if name not in names}
        kept, crashes = bearable_marks(model.file, model.sha256, tuple(settings.items()), tuple(stored.items()))
        absent.extend(crashes)
        source, captured, missing = mark_outputs(source, dict(kept))
        absent.extend(missing)
    compiled = _compile_openvino_model(core, source, settings, model.file)
    executed = executed or executed_graph_of(compiled, precision)
    request = compiled.create_infer_request()
    order = {**names, **{name: declared + position for name, position in captured.items()}}

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        feeds = {given[place]: sample.arrays[value.name] for place, value in enumerate(model.inputs)}
        try:
            request.infer(feeds)
        except RuntimeError as error:
            raise ParityError(
                f"OpenVINO failed while running sample {sample.name}: {first_line(error)}",
                where=str(model.file),
                fix="check that plain OpenVINO runs this model on this input",
            ) from error
        return {name: _as_numpy(request.get_output_tensor(index)) for name, index in order.items()}

    yield Session(
        run=run,
        disturbs="none" if not capture.tensors else f"outputs marked ({observe})",
        executed=executed,
        absent=tuple(absent),
        environment={
            "openvino": ov.__version__,
            "cpu": core.get_property("CPU", "FULL_DEVICE_NAME").strip(),
            "executed precision": executed.executed,
        },
    )


def _compile_openvino_model(core: Any, source: Any, settings: Mapping[str, Any], path: Path) -> Any:
    try:
        return core.compile_model(source, "CPU", dict(settings))
    except RuntimeError as error:
        raise ParityError(
            f"OpenVINO cannot compile the model: {first_line(error)}",
            where=str(path),
            fix="check that plain OpenVINO compiles this model",
        ) from error


@functools.lru_cache(maxsize=4)
def _undisturbed_graph(
    files: tuple[Path, Path], digest: str, precision: str, settings: tuple[tuple[str, Any], ...]
) -> tuple[ExecutedGraph, Mapping[str, str]]:
    """The executed graph of a file as it is, and the format of each tensor of its ONNX file in which a layer of it ends.

    Every part of a long recording asks for it; `digest` makes another file of the same path another question.
    """
    import openvino as ov

    from parityscope.arithmetic.fusion.following import follow_executed, layers_by_end
    from parityscope.case.model import read_graph

    del digest
    core, (file, path) = ov.Core(), files
    executed = executed_graph_of(
        _compile_openvino_model(core, read_openvino_file(core, file), dict(settings), file), precision
    )
    graph = read_graph(path)
    stored = {name: kernel.stored for kernel in follow_executed(executed, graph).kernels for name in kernel.values}
    return executed, {name: stored.get(name, "f32") for name in layers_by_end(executed, graph)}


def _as_numpy(tensor: Any) -> np.ndarray:
    """A copy of a tensor's elements: the request's memory is used again by the next sample."""
    import ml_dtypes

    data = tensor.data
    if tensor.get_element_type().get_type_name() == "bf16":
        data = data.view(ml_dtypes.bfloat16)
    copy: np.ndarray = data.copy()
    return copy


def executed_graph_of(compiled: Any, requested: str) -> ExecutedGraph:
    """The layers that a compiled model runs as, with their kernels, precisions and what each reads."""
    layers = []
    weight: dict[str, int] = {}
    for operation in compiled.get_runtime_model().get_ordered_ops():
        info = {key: value.astype(str) for key, value in operation.get_rt_info().items()}
        kind = info.get("layerType", "")
        if kind == "Const":
            continue
        precision = _PRECISIONS.get(info.get("runtimePrecision", ""), info.get("runtimePrecision", ""))
        layers.append(
            ExecutedLayer(
                name=operation.get_friendly_name(),
                layer_type=kind,
                nodes=tuple(name for name in info.get("originalLayersNames", "").split(",") if name),
                precision=precision,
                stored=_PRECISIONS.get(info.get("outputPrecisions", "").split(",")[0], ""),
                kernel=info.get("primitiveType", ""),
            )
        )
        if kind not in _PASSIVE:
            weight[precision] = weight.get(precision, 0) + 1
    # The lowest float precision in which any computing layer runs decides what the engine is.
    executed = next((name for name in ("f16", "bf16", "f32") if weight.get(name)), requested)
    return ExecutedGraph(layers=tuple(layers), requested=requested, executed=executed)


def _translate_file(path: Path, reference: Model) -> tuple[Path, tuple[str, ...]]:
    from parityscope.backends.openvino_ir.translating import translated_file

    return translated_file(path, reference.opsets.get("", 0)), ()


def _switched_targets(target: Target) -> Iterator[Target]:
    yield with_option(target, "threads", "1")
    if target.precision not in {"", "f32"}:
        yield replace(target, precision="f32")


def _list_arithmetic(machine: Machine) -> Iterator[Arithmetic]:
    """The hint is executed in what the CPU has (read from compiled models, docs/targets.md)."""
    has_f16 = bool(machine.features & {"avx512_fp16", "amx_fp16"})
    has_bf16 = bool(machine.features & {"avx512_bf16", "amx_bf16"})
    half = "f16" if has_f16 else "bf16" if has_bf16 else "f32"
    has = (
        " and ".join(name for name, there in (("FP16", has_f16), ("BF16", has_bf16)) if there)
        or "neither FP16 nor BF16"
    )
    why = f"this CPU has {has} arithmetic"
    own = "Parityscope asks for f32; its own default may be bf16"
    yield Arithmetic(target="openvino", computes="f32", tf32="none", because=own)
    yield Arithmetic(target="openvino:f16", computes=half, tf32="none", because=why)
    yield Arithmetic(target="openvino:bf16", computes="bf16" if has_bf16 else "f32", tf32="none", because=why)


def _program_of_target(target: Target) -> str:
    threads = threads_of(target)
    hint = f'"INFERENCE_PRECISION_HINT": "{target.precision or "f32"}", "PERFORMANCE_HINT": "LATENCY"'
    settings = "{" + hint + (f', "INFERENCE_NUM_THREADS": {threads}' if threads else "") + "}"
    lines = [
        "import openvino as ov",
        "core = ov.Core()",
        f'compiled = core.compile_model(core.read_model(path), "CPU", {settings})',
        "found = compiled(inputs)",
        "return {name: np.array(found[index]) for index, name in enumerate(names)}",
    ]
    return "\n".join(lines)


BACKEND = Backend(
    name="openvino",
    title="OpenVINO (CPU)",
    called=("ov",),
    opens={ENDING: "model"},
    options={
        "observe": "layers (default): capture at the borders of executed layers; all: every tensor, which changes fusion",
        "threads": "inference threads",
    },
    precisions=("f32", "bf16", "f16"),
    observes=True,
    probe=probe_of_module("openvino", "'parityscope[openvino]'", _tell_processor),
    open=_open_session,
    plain=frozenset({"observe", "threads"}),
    words="OpenVINO",
    tries_repairs=True,
    translates={ENDING: _translate_file},
    converts=True,
    profile="openvino",
    switched=_switched_targets,
    settings={
        **{
            name: f'core.compile_model(model, "CPU", {{"INFERENCE_PRECISION_HINT": "{name}"}})'
            for name in ("f32", "f16", "bf16")
        },
        "accuracy": 'core.compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})',
    },
    arithmetic=_list_arithmetic,
    program=_program_of_target,
    tracker="https://github.com/openvinotoolkit/openvino/issues",
)
