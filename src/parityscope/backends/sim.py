"""Simulation: what a reduced-precision engine would compute, without the engine.

**What runs.** The network node by node in ONNX Runtime's CPU provider, every operator in FP32, and tensors are
rounded where an engine of the target's precision would store them: `sim:f16`, `sim:bf16` and the float8 formats round
behind every operator, and the weights; `sim:tf32` rounds the inputs of products only. Without a precision the model
runs as it is typed: its float16 and bfloat16 values are rounded to their own formats, which ONNX Runtime itself does
not do on a CPU.

**Quantized products.** `sim:int8` and `sim:fp8` quantize what products read, with the scales that follow from
`dynamic_range`: the largest magnitude of each activation, as JSON or as a calibration cache of TensorRT's.

**Fusion.** An engine that keeps a chain of operators in registers rounds less often, and keeps some operators in FP32.
`profile=openvino`, `onnxruntime-cuda` or `tensorrt` rounds where that engine would; without one every operator rounds.

**What it leaves out.** Accumulators narrower than FP32. Kernels that ignore TF32. Weights beyond the range
of the format become infinite as in IEEE 754, or the largest finite number with `overflow=saturate`, as TensorRT makes
them; tensors overflow to infinity (in float8 they follow `overflow` too). `range=unbounded` leaves float16 FP32's range,
so that only its rounding is seen.

**What can be observed.** Every value of the main graph, by its own name, as stored (rounded). Nodes run one by one
(`evaluation`), so that watching disturbs nothing.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Session, probe_of_module
from parityscope.backends.targets import threads_of
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.arithmetic.rounding import Overflow
    from parityscope.arithmetic.simulation import Arrangement, Ground
    from parityscope.case import Model, Sample
    from parityscope.evaluation.program import Program
    from parityscope.evaluation.worlds import World

_OVERFLOW: dict[str, Overflow] = {"infinity": "infinity", "saturate": "saturate"}


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    import onnxruntime as ort

    from parityscope.evaluation.evaluating import run_world
    from parityscope.evaluation.machine import usable_cores
    from parityscope.evaluation.room import check_room, nbytes_of_world
    from parityscope.evaluation.sessions import Sessions

    threads = threads_of(target)
    world, absent = prepare_world(model, target, capture.tensors)
    lacking = {skip.what for skip in absent}
    outputs = [value.name for value in model.outputs]
    wanted = [*outputs, *(name for name in capture.tensors if name not in outputs and f"tensor {name}" not in lacking)]
    sessions = Sessions(threads=threads or usable_cores())

    def run_sample(sample: Sample) -> Mapping[str, np.ndarray]:
        check_room(nbytes_of_world(model, world.program, sample.arrays), 1)
        return run_world(world, sample.arrays, wanted, sessions)

    yield Session(
        run=run_sample,
        absent=absent,
        environment={"onnxruntime": ort.__version__, "simulated": target.precision or "as typed"},
    )


def prepare_world(model: Model, target: Target, tensors: Sequence[str]) -> tuple[World, tuple[Skip, ...]]:
    """The world that `target` is, and what it lacks, those of `tensors` that it has not among it.

    Raises:
        ParityError: an option of the target is not known, or the model cannot be simulated so.
    """
    # Files that hold dynamic ranges may be other ones the next time.
    make = _world_of.__wrapped__ if target.option("dynamic_range") else _world_of
    world, notes = make(_Simulation(model=model, target=target))
    program = world.program
    known = {*program.steps_of, *program.constants, *program.inputs}
    return world, (*notes, *(_skip_of_absent(name) for name in tensors if name not in known))


@dataclass(frozen=True, slots=True, eq=False)
class _Simulation:
    """A simulation of a model; equal ones are the same."""

    model: Model
    target: Target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Simulation) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.model.path, self.model.sha256, self.target


@functools.lru_cache(maxsize=4)  # chosen: the formats of one question, which several stages ask again
def _world_of(asked: _Simulation) -> tuple[World, tuple[Skip, ...]]:
    from parityscope.evaluation.simulating import simulated_world

    found = arrangement_of(asked.model, asked.target)
    shared = _ground_for(asked)
    # A program of its own is a course of its own: where other worlds have to stop is nothing to this one.
    program = replace(shared[1]) if shared is not None and shared[0].model is found.model else None
    return simulated_world(asked.target.precision or "as typed", found, program), found.notes


def _ground_for(asked: _Simulation) -> tuple[Ground, Program] | None:
    """What any number of targets say their roundings of, and its program, neither to be changed; None where they write."""
    from parityscope.arithmetic.formats import QUANTIZED
    from parityscope.arithmetic.recurrent import is_recurrent
    from parityscope.evaluation.program import prepared_graph

    target = asked.target
    if target.precision in QUANTIZED or target.option("profile", "none") != "none":
        return None
    # Only recurrent operators are taken apart in another way for another format.
    differs = any(is_recurrent(node) for node in prepared_graph(asked.model).graph.all_nodes())
    return _ground(
        _Simulation(model=asked.model, target=Target(backend="sim", precision=target.precision if differs else ""))
    )


@functools.lru_cache(maxsize=2)  # of a model, and the corrected copy that is examined after it
def _ground(asked: _Simulation) -> tuple[Ground, Program]:
    from parityscope.arithmetic.formats import format_named
    from parityscope.arithmetic.simulation import Ground, ground_of, is_ground
    from parityscope.evaluation.program import compile_program, prepared_graph, program_of

    graph, precision = prepared_graph(asked.model), asked.target.precision
    if is_ground(graph):
        return Ground(model=graph), program_of(asked.model)
    ground = ground_of(graph, format_named(precision) if precision else None)
    return ground, compile_program(ground.model)


def arrangement_of(model: Model, target: Target) -> Arrangement:
    """What `target` rounds in the model.

    Raises:
        ParityError: an option of the target is not known, or the model cannot be simulated so.
    """
    from parityscope.arithmetic.formats import QUANTIZED
    from parityscope.arithmetic.simulation import arrange_precision
    from parityscope.evaluation.program import prepared_graph

    overflow = target.option("overflow", "infinity")
    if overflow not in _OVERFLOW:
        raise ParityError(f"overflow={overflow!r} is not known", fix=f"use overflow={'|'.join(_OVERFLOW)}")
    if target.precision in QUANTIZED:
        return _quantized_arrangement(model, target)
    shared = _ground_for(_Simulation(model=model, target=target))
    ground = None if shared is None else shared[0]
    if target.precision:
        bounded = target.option("range", "format")
        if bounded not in {"format", "unbounded"}:
            raise ParityError(f"range={bounded!r} is not known", fix="use range=format|unbounded")
        return arrange_precision(
            prepared_graph(model),
            target.precision,
            overflow=_OVERFLOW[overflow],
            bounded=bounded == "format",
            profile=target.option("profile", "none"),
            ground=ground,
        )
    if "profile" in dict(target.options):
        raise ParityError("a fusion profile needs a precision", fix="add :f16 or :bf16, or leave profile= out")
    if "overflow" in dict(target.options):
        raise ParityError("a model that runs as it is typed rounds no weights", fix="leave overflow= out, or add :f16")
    return arrange_precision(prepared_graph(model), None, ground=ground)


def _quantized_arrangement(model: Model, target: Target) -> Arrangement:
    from parityscope.arithmetic.quantizing import quantize_products
    from parityscope.case.formats.dynamic_ranges import dynamic_ranges

    given = target.option("dynamic_range")
    if not given:
        raise ParityError(
            f"sim:{target.precision} needs the largest magnitudes of activations",
            fix=f"add ?dynamic_range=calibration.cache, or let parityscope predict --formats {target.precision} find them",
        )
    senseless = [name for name in ("overflow", "profile", "range") if name in dict(target.options)]
    if senseless:
        raise ParityError(f"quantized products have no {senseless[0]}=", fix=f"leave {senseless[0]}= out")
    largest = dynamic_ranges(given)
    if largest and not largest.keys() & {*model.sites, *(value.name for value in model.inputs)}:
        raise ParityError(
            f"the dynamic ranges are of no tensor of the model: they name {next(iter(largest))!r}",
            where=str(model.path),
            fix="give the ranges of this model, by the names that its tensors have in the file",
        )
    return quantize_products(model.graph(), target.precision, largest)


def _skip_of_absent(name: str) -> Skip:
    return Skip(
        what=f"tensor {name}",
        reason="the simulated graph has no such value: converting the model to a newer opset or inlining its "
        "functions replaced it",
    )


BACKEND = Backend(
    name="sim",
    title="Simulation of reduced precision (ONNX Runtime CPU)",
    called=("simulation", "simulated"),
    options={
        "dynamic_range": "for int8 and fp8: the largest magnitude of each activation, a file or JSON",
        "overflow": "weights beyond the format's range: infinity (default) or saturate",
        "profile": "whose fusion is simulated: none (default), openvino, onnxruntime-cuda or tensorrt",
        "range": "format (default); unbounded rounds as float16 does and keeps FP32's range",
        "threads": "threads inside an operator; 0 leaves it to the runtime",
    },
    precisions=("tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "int8", "fp8"),
    observes=True,
    probe=probe_of_module("onnxruntime"),
    open=_open_session,
    plain=frozenset({"overflow", "profile", "range", "threads"}),
    files=frozenset({"dynamic_range"}),
    words="a prediction",
    package="onnxruntime",
    simulates=True,
    tries_repairs=True,
    onnxruntime="yes",
    tensorrt="perhaps",
    untimed="a simulation computes what the deployment would, and not in its time",
)
