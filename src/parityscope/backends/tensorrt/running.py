"""Sessions of an engine, strictly by name. NOT RUN on a GPU: written from NVIDIA's documentation of 8.6 to 11.

The calls are those that all these versions have: I/O tensors by name, `set_input_shape`, `set_tensor_address`,
`execute_async_v3`; `api.py` has them as types. What is decided here is as little as possible: names, types, shapes and profiles
are checked in `iotensors.py`, one run is `executing.py`, bytes are read in `decoding.py`, and what an engine shows is taken in by
`listening.py`, all of which is tested without a GPU.

TensorRT's debug listener around `listening.Heard`: a class of TensorRT's own kind, because it calls back into nothing else.

The ranges of the tensors that an engine shows, as a file: nothing of the tensors themselves is kept, whatever their size.

The form is that of trtexec's `--saveAllDebugTensors=summary` (`tensor_summary.json`: `metadata` and `tensors`, each with `name`,
`shape`, `type`, `statistics` of `min`, `max`, `avg` and `elements`, and `files`), with the counts that it lacks: `nan`, `inf` and
`occurrences` (over all samples, and over the turns of loops). Numbers that are not finite are strings, as strict JSON needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Session
from parityscope.backends.tensorrt.borders import border_values, whole_regions, with_site_names
from parityscope.backends.tensorrt.decoding import nbytes_of
from parityscope.backends.tensorrt.executing import EngineRun, run_once
from parityscope.backends.tensorrt.inspector import engine_layers
from parityscope.backends.tensorrt.iotensors import (
    DTYPES,
    check_engine,
    check_fixed,
    covering_profile,
    io_facts,
    narrow_inputs,
    widen_outputs,
)
from parityscope.backends.tensorrt.listening import Heard
from parityscope.backends.tensorrt.memory import opened_device, pointer_of
from parityscope.case.extending import inferred_shapes
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.private_folders import scratch_folder
from parityscope.records import Skip
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.backends.tensorrt.api import Engine, ExecutionContext
    from parityscope.backends.tensorrt.iotensors import IOFact
    from parityscope.backends.tensorrt.listening import Summary
    from parityscope.backends.tensorrt.loading import LoadedEngine
    from parityscope.backends.tensorrt.marking import Marked
    from parityscope.backends.tensorrt.memory import Device
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.case import Model, Sample
    from parityscope.logs import EngineLayer
    from parityscope.records import ExecutedGraph

_BUDGET = 1 << 29  # bytes of shown tensors in memory, chosen: what is more goes to mapped files


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuestion:
    """What a session is asked for.

    `tensors` are those wanted besides the outputs, `marked` what the engine was built to show, `describe` makes the executed
    graph of the engine's layers, `disturbs` says how looking changed the engine. `nodes` are the names that nodes had during
    the build -> those of their sites, `reads` tells which nodes each of them reads. `fixed` are inputs of the model that
    became constants of the engine, `narrow` lets int64 stand for int32. `summary` is a file for the ranges of all tensors that
    the engine shows.
    """

    describe: Callable[[Sequence[EngineLayer]], ExecutedGraph]
    tensors: tuple[str, ...] = ()
    marked: Marked
    disturbs: str = "none"
    where: str = ""
    nodes: Mapping[str, str] = field(default_factory=dict)
    reads: Callable[[], Mapping[str, Sequence[str]]] = dict
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict)
    narrow: bool = False
    summary: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def open_engine(loaded: LoadedEngine, package: Package, model: Model, asked: EngineQuestion) -> Iterator[Session]:
    """A session of an engine.

    Raises:
        ParityError: it is not the model's, cannot be fed by name, or there is no memory for it.
    """
    engine = loaded.engine
    profiles = [io_facts(engine, number) for number in range(max(engine.num_optimization_profiles, 1))]
    facts = profiles[0]
    layers = with_site_names(_inspect_engine(package.module, engine), asked.nodes, model.sites)
    layers = whole_regions(layers, asked.reads())
    names = _shown_as(engine, layers, model, asked)
    inputs = [value.name for value in model.inputs if value.name not in asked.fixed]
    check_engine(facts, inputs, [value.name for value in model.outputs], asked.where)
    context = engine.create_execution_context()
    if context is None:
        raise ParityError(
            "TensorRT has no memory for the engine",
            where=asked.where,
            fix="free memory of the GPU, or build with smaller largest shapes",
        )
    with scratch_folder("trt") as folder, opened_device() as device:
        heard = listener = None
        known: dict[object, Mapping[str, tuple[int, ...]]] = {}
        if asked.tensors or asked.summary:
            heard = Heard(
                names=names,
                budget=_BUDGET,
                folder=Path(folder),
                keeps=bool(asked.tensors),
                summarizes=asked.summary is not None,
            )
            # Outputs that were marked come back as outputs; TensorRT before 10 has nothing else.
            if hasattr(package.module, "IDebugListener"):
                listener = listen_to_context(package, context, heard, device)

        def run(sample: Sample) -> Mapping[str, np.ndarray]:
            check_fixed(asked.fixed, sample.arrays, sample.name, asked.where)
            if heard is not None:
                heard.clear()
                heard.shapes = _infer_shapes(model, {name: array.shape for name, array in sample.arrays.items()}, known)
            if asked.narrow:
                sample = replace(sample, arrays=narrow_inputs(facts, sample.arrays, sample.name, asked.where))
            with contextlib.ExitStack() as memory:
                work = EngineRun(package=package, context=context, device=device, memory=memory, where=asked.where)
                found = run_once(work, _choose_profile(context, profiles, sample, device, asked.where), sample)
            if asked.narrow:
                found = widen_outputs(found, {value.name: value.dtype for value in model.outputs})
            if heard is not None and asked.summary is not None:
                write_summary(asked.summary, heard.summaries, engine=asked.where)
            named = {names.get(name, name): array for name, array in found.items()}
            if heard is None:
                return named
            return named | {name: array for name, array in heard.arrays.items() if name.split("#")[0] in asked.tensors}

        yield Session(
            run=run,
            disturbs=asked.disturbs,
            executed=asked.describe(layers),
            absent=(*asked.marked.absent, *_skips_of_not_shown(asked, names)),
            environment=asked.environment,
        )
        # The context calls the listener for as long as it lives.
        del listener


def _choose_profile(
    context: ExecutionContext, profiles: Sequence[Sequence[IOFact]], sample: Sample, device: Device, where: str
) -> Sequence[IOFact]:
    """The facts of the profile that covers `sample`, switched to where the engine has several.

    Raises:
        ParityError: TensorRT refuses the profile.
    """
    if len(profiles) == 1:
        return profiles[0]
    number = covering_profile(profiles, sample.arrays)
    if not context.set_optimization_profile_async(number, device.handle):
        raise ParityError(
            f"TensorRT refuses optimization profile {number} of the engine",
            where=where,
            fix="build the engine with that profile alone: trtexec --minShapes=... --optShapes=... --maxShapes=...",
        )
    return profiles[number]


def _shown_as(engine: Engine, layers: Sequence[EngineLayer], model: Model, asked: EngineQuestion) -> dict[str, str]:
    """The tensors that the engine may show while it runs, or has as outputs, by its names -> those asked for.

    What was marked as unfused goes by the inspector's names, and `is_debug_tensor` does not know it (its documentation says
    so): whether such a tensor comes is seen when the engine runs.
    """
    told = {**border_values(layers, model.sites), **asked.marked.names}
    outputs = {engine.get_tensor_name(index) for index in range(engine.num_io_tensors)}
    written = {tensor.name for layer in layers for tensor in layer.outputs} if asked.marked.unfused else set()
    shows = getattr(engine, "is_debug_tensor", lambda _name: False)
    wanted = model.sites if asked.summary else asked.tensors
    return {
        name: value
        for name, value in told.items()
        if value in wanted and (name in outputs or name in written or shows(name))
    }


def _infer_shapes(
    model: Model, inputs: Mapping[str, tuple[int, ...]], known: dict[object, Mapping[str, tuple[int, ...]]]
) -> Mapping[str, tuple[int, ...]]:
    """The shapes that values have for these inputs, as far as ONNX's inference knows them; `known` keeps what was inferred."""
    key = tuple(sorted(inputs.items()))
    if key not in known:
        known[key] = inferred_shapes(model.path, dict(inputs))
    return known[key]


def _skips_of_not_shown(asked: EngineQuestion, names: Mapping[str, str]) -> list[Skip]:
    """Tensors that were asked for and that the engine does not show, with the reason."""
    known = {*names.values(), *(skip.what.removeprefix("tensor ") for skip in asked.marked.absent)}
    fix = "observe=debug shows it by name, and ends a fusion there"
    reason = "inside of a kernel, or between kernels of a region that shows nothing"
    return [Skip(what=f"tensor {name}", reason=reason, fix=fix) for name in asked.tensors if name not in known]


def _inspect_engine(trt: Any, engine: Any) -> tuple[EngineLayer, ...]:
    """The engine's layers; the names of fused ones are joined by control characters, which strict JSON refuses."""
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    return engine_layers(json.loads(text, strict=False))


def listen_to_context(package: Package, context: Any, heard: Heard, device: Device) -> Any:
    """Turns on what `context` shows, into `heard`; the listener that is given back must outlive the context.

    Raises:
        ParityError: TensorRT refuses the listener.
    """
    trt = package.module

    class Listener(trt.IDebugListener):  # type: ignore[misc,name-defined] # TensorRT calls back only into a class derived from its own
        def process_debug_tensor(self, addr: Any, location: Any, kind: Any, shape: Any, name: str, stream: int) -> bool:
            if not heard.wants(name):
                return True
            dtype = DTYPES.get(kind.name, kind.name.lower())
            dims = tuple(shape)
            nbytes, address = nbytes_of(dtype, dims), pointer_of(addr)
            if location.name == "HOST":
                content = np.frombuffer(ctypes.string_at(address, nbytes), dtype=np.uint8)
            else:
                content = device.fetch_from(address, nbytes, stream)
            heard.take(name, dtype, dims, content)
            return True

    listener = Listener()
    if not context.set_debug_listener(listener):
        raise ParityError("TensorRT refuses a debug listener", fix="use observe=outputs")
    context.set_all_tensors_debug_state(True)
    if hasattr(context, "unfused_tensors_debug_state"):
        context.unfused_tensors_debug_state = True
    return listener


def _summary_document(summaries: Mapping[str, Summary], *, engine: str) -> dict[str, Any]:
    """The summaries by tensor as plain data."""
    return {
        "metadata": {"title": "Tensor summary", "engine_name": engine},
        "tensors": [
            {
                "name": name,
                "shape": list(one.shape),
                "type": one.dtype,
                "statistics": {
                    "min": _as_json_number(one.smallest),
                    "max": _as_json_number(one.largest),
                    "avg": _as_json_number(one.mean),
                    "elements": one.count,
                    "nan": one.nan,
                    "inf": one.inf,
                    "occurrences": one.occurrences,
                },
                "files": {},
            }
            for name, one in summaries.items()
        ],
    }


def write_summary(path: Path, summaries: Mapping[str, Summary], *, engine: str) -> None:
    """Writes the summaries to `path`, over what an earlier sample wrote."""
    write_whole(path, json.dumps(_summary_document(summaries, engine=engine), indent=1) + "\n")


def _as_json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN"
