"""ONNX Runtime: the usual reference, and a deployment of its own.

**What runs.** The file itself, by path, as a user's program would load it. When intermediate tensors are asked for, the
same graph with those tensors marked as outputs: ONNX Runtime then cannot fuse across them, and what that changes is
measured and reported. With `observe=layers` only the last tensor of each node of the optimized graph is marked, which leaves
the fused nodes as they are; what is between can then not be seen.

**What really runs** is read from the optimized graph that ONNX Runtime saves: the nodes fused into each of its nodes, the
precision, and the execution provider (a node that CUDA lacks a kernel for is run by the CPU, silently). It costs a second
session, so only a candidate is asked.

**As a reference.** ONNX Runtime's CPU provider computes float16 operators in float32 and removes the roundings between
them at every optimization level (measured), so it is no oracle for FP16 models; use `sim` for that.

**TF32.** On CUDA devices TF32 is on unless it is switched off, so this backend always says which: `tf32=off` by default.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends import Backend, Capture, Session, probe_of_module
from parityscope.backends.onnxruntime_providers import ON_TENSORRT, device_of, missing_library, providers_of
from parityscope.backends.onnxruntime_sessions import OPTIMIZATION_LEVELS, open_bytes, open_path
from parityscope.backends.targets import one_of, threads_of, with_option
from parityscope.case.extending import with_outputs
from parityscope.custom_operators import libraries_for_session
from parityscope.errors import ParityError
from parityscope.installed import Arithmetic, arithmetic_on_gpu
from parityscope.memory import allowed_memory, relieve_memory
from parityscope.operators import OPERATORS, of_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends import Probe
    from parityscope.backends.onnxruntime_running import Run
    from parityscope.case import Model, Sample
    from parityscope.installed import Machine
    from parityscope.records import ExecutedGraph, Skip, Target

# Sessions of whole files that are kept for who asks for the same again: ONNX Runtime takes longer than linearly to open one.
#
# 20,000 nodes take 9 seconds, and an examination runs a file undisturbed for its outputs, for its layers, for each corrected
# copy and for each repair that is tried. Kept is only what can answer a second time as if it was opened anew: files without
# chance (whose generators go on), without control flow (whose bodies are not looked through) and of operators that are known
# here; and only as far as their weights together take half of `--memory`. Sessions end with the process; one that was forked
# opens its own and leaves the parent's alone.

_KEPT = 4  # chosen: both sides, a corrected copy, a repaired file
_SHARE = 2  # of the memory allowed for tensors one in so many may be weights that are kept; chosen
_CHANGING = of_kind("random", "control flow")
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})  # no other, and so no function of the model's own
_sessions: OrderedDict[Hashable, tuple[int, Run]] = OrderedDict()  # bytes of graph and weights, the session
_inherited: list[OrderedDict[Hashable, tuple[int, Run]]] = []
_locks = [threading.Lock()]  # `_sessions`, by one thread at a time; the last is in use
_UNREGISTERED = "is not a registered function/op"  # ONNX Runtime's words (graph.cc)
_PROBE_IR_VERSION = 8  # of ONNX 1.13: every runtime in use reads it
_INSPECTED_BYTES = 1 << 28  # chosen: for as long as the graph is saved, its weights are in memory and on disk once more
_HALF = {"f16": "float16", "bf16": "bfloat16"}


def _leave_inherited() -> None:
    """When forked: the parent's sessions are neither used nor ended, whose end waits for threads that are not there."""
    _locks.append(threading.Lock())  # a thread that is not here may hold the other
    _inherited.append(_sessions.copy())
    _sessions.clear()


os.register_at_fork(after_in_child=_leave_inherited)


def _kept_session(model: Model, options: Hashable, opened: Callable[[], Run]) -> Run | None:
    """The session that `opened` gives, or gave for the same model and `options` in this process; None if it is not to be kept."""
    room = allowed_memory() // _SHARE - model.nbytes
    if room < 0 or not _answers_alike(model):
        return None
    key = model.path, model.sha256, options
    with _locks[-1]:
        if key in _sessions:
            _sessions.move_to_end(key)
            return _sessions[key][1]
        while _sessions and (len(_sessions) >= _KEPT or sum(nbytes for nbytes, _ in _sessions.values()) > room):
            _sessions.popitem(last=False)
    run = opened()  # outside of it, as that takes long; of two threads that open the same the later one's is kept
    with _locks[-1]:
        _sessions[key] = model.nbytes, run
    return run


def _answers_alike(model: Model) -> bool:
    kinds = {site.op_type for site in model.sites.values()}
    return kinds <= OPERATORS.keys() and not kinds & _CHANGING and model.opsets.keys() <= _DOMAINS


def _list_providers(ort: Any) -> dict[str, str]:
    providers = ort.get_available_providers()
    # What is listed was built in; whether its libraries are here is another question.
    broken = {f"{name} cannot be loaded": why for name in providers if (why := missing_library(name))}
    return {"providers": ", ".join(providers), **broken}


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    _check_declaration(model, target)
    level = one_of(target, "optimization", tuple(OPTIMIZATION_LEVELS), "all")
    threads = threads_of(target)
    chosen = providers_of(target)
    providers, environment = chosen.names, chosen.environment
    deterministic = one_of(target, "deterministic", ("on", "off"), "off") == "on"
    observe = one_of(target, "observe", ("all", "layers"), "all")
    outputs = [value.name for value in model.outputs]
    custom_ops = target.option("custom_ops")
    executed: ExecutedGraph | None = None
    absent: Sequence[Skip] = ()
    kept: Run | None = None

    def fused() -> ExecutedGraph:
        from parityscope.backends.onnxruntime_executed import executed_by_onnxruntime

        found = executed_by_onnxruntime(model, optimization=level, providers=providers, custom_ops=custom_ops)
        # TF32 is no type of the graph: it is how CUDA multiplies what is FP32.
        return replace(found, executed="tf32") if environment.get("tf32") == "on" and found.executed == "f32" else found

    def inspect() -> ExecutedGraph:
        if model.nbytes > _INSPECTED_BYTES:
            raise ParityError(
                f"the model is larger than {_INSPECTED_BYTES >> 20} MiB, and ONNX Runtime writes all weights to show its graph",
                fix="ort?observe=layers looks all the same",
            )
        return fused()

    if capture.tensors:
        marked = [name for name in capture.tensors if name not in outputs]
        _check_known(model, marked)
        if observe == "layers":
            from parityscope.arithmetic.fusion.following import layers_by_end, split_borders

            executed = fused()
            marked, absent = split_borders(executed, layers_by_end(executed, model.graph()), marked, model.sites)
        relieve_memory(model.nbytes)
        run = open_bytes(
            with_outputs(model.path, marked),
            outputs=[*outputs, *marked],
            optimization=level,
            threads=threads,
            providers=providers,
            folder=model.path.parent,
            custom_ops=custom_ops,
            bound=chosen.bound,
            deterministic=deterministic,
        )
    else:

        def opened() -> Run:
            relieve_memory(model.nbytes)
            return open_path(
                model.path,
                outputs=outputs,
                optimization=level,
                threads=threads,
                providers=providers,
                custom_ops=custom_ops,
                bound=chosen.bound,
                deterministic=deterministic,
            )

        on_host = list(providers) == ["CPUExecutionProvider"] and not libraries_for_session(custom_ops)
        kept = _kept_session(model, (level, threads, deterministic, chosen.bound), opened) if on_host else None
        run = kept or opened()

    opened_runs = [run]
    is_kept = kept is not None
    del run, kept

    def run_sample(sample: Sample) -> Mapping[str, np.ndarray]:
        return opened_runs[0](sample.arrays)

    try:
        yield Session(
            run=run_sample,
            disturbs=f"outputs marked{' (layers)' if observe == 'layers' else ''}" if capture.tensors else "none",
            executed=executed,
            inspect=inspect,
            absent=tuple(absent),
            environment=environment,
        )
    finally:  # whoever still holds the Session does not hold the weights
        opened_runs.clear()
        if not is_kept:
            relieve_memory(model.nbytes)


def unregistered_operators(
    operators: Iterable[tuple[str, str]], opsets: Mapping[str, int], library: str
) -> set[tuple[str, str]]:
    """Those of `operators` (domain, type) that ONNX Runtime does not have, with `library` registered if it is given.

    Each is asked for in a model of one node: what the runtime says of an unknown operator comes before anything else.

    Raises:
        ParityError: the library cannot be loaded.
    """
    import onnx.helper

    missing = set()
    for domain, kind in operators:
        value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
        graph = onnx.helper.make_graph([onnx.helper.make_node(kind, [], ["y"], domain=domain)], "probe", [], [value])
        imports = [onnx.helper.make_opsetid(name, version) for name, version in opsets.items()]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=_PROBE_IR_VERSION)
        try:
            open_bytes(model.SerializeToString(), outputs=["y"], custom_ops=library)
        except ParityError as refusal:
            if refusal.where in libraries_for_session(library):
                raise
            if _UNREGISTERED in refusal.problem:
                missing.add((domain, kind))
    return missing


def _check_known(model: Model, names: Sequence[str]) -> None:
    unknown = next((name for name in names if name not in model.sites), None)
    if unknown is not None:
        raise ParityError(
            f"the graph computes no value {unknown!r}",
            where=str(model.path),
            fix="take a name from `parityscope run MODEL --all-tensors`",
        )


def _check_declaration(model: Model, target: Target) -> None:
    """A precision is a declaration here; it must not contradict the types that the graph itself has."""
    if not target.precision or device_of(target).partition(":")[0] == ON_TENSORRT:
        return  # nothing is declared, or it is a flag of the builder
    wanted, halves = _HALF.get(target.precision), [_HALF[name] for name in model.formats if name in _HALF]
    if wanted is not None and wanted not in halves:
        raise ParityError(
            f"{target.precision} is declared, and nothing in the file is {wanted}",
            where=str(model.path),
            fix=f"convert the model to {wanted} and give it with model=PATH, or use sim:{target.precision}",
        )
    if target.precision == "tf32" and target.option("tf32") != "on":
        raise ParityError("tf32 is declared but not switched on", fix="write ort:tf32?device=cuda&tf32=on")
    if target.precision == "f32" and halves:
        raise ParityError(
            f"f32 is declared, but the file holds {' and '.join(halves)}",
            where=str(model.path),
            fix="leave the precision out, or declare f16 or bf16",
        )


def _switched_targets(target: Target) -> Iterator[Target]:
    yield with_option(target, "optimization", "disabled")
    yield with_option(target, "threads", "1")
    if target.option("tf32") == "on":
        without = replace(target, precision="" if target.precision == "tf32" else target.precision)
        yield with_option(without, "tf32", "off")


def _widens_halves(target: Target) -> bool:
    return device_of(target) == "cpu"


def _list_arithmetic(machine: Machine) -> Iterator[Arithmetic]:
    why = "the CPU provider computes halves in FP32, without the roundings between operators (measured)"
    yield Arithmetic(target="ort", computes="f32, also for f16 graphs", tf32="none", because=why)
    if "CUDAExecutionProvider" in machine.told.get("ort", {}).get("providers", ""):
        yield arithmetic_on_gpu(machine, "ort?device=cuda", "the graph's types", "ONNX Runtime's own default is on")


def _linked_libraries(probe: Probe) -> Iterator[tuple[str, int]]:
    if probe.problem:
        return
    try:
        from onnxruntime.capi import build_and_package_info as told
    except ImportError:  # builds before 1.12, and those that others made
        return
    version = str(getattr(told, "cuda_version", ""))
    if version[:1].isdigit():
        yield "onnxruntime-gpu", int(version.partition(".")[0])


def _program_of_target(target: Target) -> str:
    level = OPTIMIZATION_LEVELS[one_of(target, "optimization", tuple(OPTIMIZATION_LEVELS), "all")]
    threads, library = threads_of(target), target.option("custom_ops")
    lines = [
        "import onnxruntime as ort",
        "options = ort.SessionOptions()",
        f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}",
        *([f"options.intra_op_num_threads = {threads}"] if threads else ()),
        *(["options.use_deterministic_compute = True"] if target.option("deterministic") == "on" else ()),
        *([f"options.register_custom_ops_library({library!r})"] if library else ()),
        f"session = ort.InferenceSession(path, options, providers={list(providers_of(target).names)!r})",
        "return dict(zip(names, session.run(names, inputs)))",
    ]
    return "\n".join(lines)


def _write_executed(model: Model, target: Target, path: Path) -> None:
    """Writes the optimized graph of a target's session."""
    from parityscope.backends.onnxruntime_executed import save_optimized

    if model.nbytes > _INSPECTED_BYTES:
        raise ParityError(f"the model is larger than {_INSPECTED_BYTES >> 20} MiB, and its graph is not written out")
    level = one_of(target, "optimization", tuple(OPTIMIZATION_LEVELS), "all")
    custom_ops = target.option("custom_ops")
    save_optimized(model, path, optimization=level, providers=providers_of(target).names, custom_ops=custom_ops)


BACKEND = Backend(
    name="ort",
    title="ONNX Runtime",
    called=("onnxruntime", "onnx"),
    opens={".onnx": "model"},
    options={
        "optimization": "disabled, basic, extended or all (default)",
        "observe": "all (default): every tensor, which changes fusion; layers: those in which a node of the optimized graph ends",
        "threads": "threads inside an operator; 0 leaves it to the runtime",
        "device": "cpu (default), cuda, cuda:N, tensorrt or tensorrt-rtx",
        "provider": "the same in ONNX Runtime's word",
        "provider_options": "switches of the TensorRT providers: trt_min_subgraph_size:5,trt_dla_core:0",
        "tf32": "on or off (default); on a GPU only",
        "cudnn_conv_algo_search": "exhaustive, heuristic or default: how cuDNN chooses algorithms; on a GPU only",
        "io_binding": "on: tensors are bound to the device before the run; off (default)",
        "deterministic": "on: kernels that give the same sums each time, where there are some; off (default)",
        "custom_ops": "path of a library with custom operators",
    },
    precisions=("f32", "tf32", "f16", "bf16"),
    observes=True,
    probe=probe_of_module("onnxruntime", tell=_list_providers),
    open=_open_session,
    plain=frozenset(
        {
            *("optimization", "observe", "threads", "device", "provider", "provider_options", "tf32"),
            *("cudnn_conv_algo_search", "io_binding", "deterministic"),
        }
    ),
    package="onnxruntime",
    tries_repairs=True,
    onnxruntime="yes",
    switched=_switched_targets,
    write_executed=_write_executed,
    widens_halves=_widens_halves,
    arithmetic=_list_arithmetic,
    linked=_linked_libraries,
    program=_program_of_target,
    tracker="https://github.com/microsoft/onnxruntime/issues",
)
