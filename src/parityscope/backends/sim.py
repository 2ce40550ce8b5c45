"""Simulation: what a reduced-precision engine would compute, without the engine.

**What runs.** A derived graph in ONNX Runtime's CPU provider, in which every operator computes in FP32 and tensors are
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

**What can be observed.** Every value of the main graph, by its own name, as stored (rounded). In a storage format
roundings stand between all operators already, so that marking outputs prevents next to no fusion: with all tensors of
the PP-OCRv4 detector and recogniser marked, their outputs are the same bit for bit. TF32 rounds at products only; what
is fused between them changes with the marks, by FP32 noise that later roundings to TF32 may enlarge.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends._ort_providers import one_of
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import onnx_ir as ir

    from parityscope.arithmetic.rounding import Overflow
    from parityscope.arithmetic.simulation import Simulation
    from parityscope.case import Model, Sample
    from parityscope.records import Target

__all__ = ["BACKEND", "prepare"]

_OVERFLOW: dict[str, Overflow] = {"infinity": "infinity", "saturate": "saturate"}


def _probe() -> Probe:
    try:
        import onnxruntime as ort
    except ImportError as error:
        return Probe(problem=f"onnxruntime cannot be imported: {error}", fix="pip install onnxruntime")
    return Probe(version=ort.__version__)


@contextlib.contextmanager
def _open(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    import onnxruntime as ort

    from parityscope.backends._onnxruntime import OPTIMIZATION_LEVELS, open_session

    threads = target.option("threads", "0")
    if not threads.isdigit():
        raise ParityError(f"threads={threads!r} is not a whole number", fix="write threads=2")
    level = one_of(target, "optimization", tuple(OPTIMIZATION_LEVELS), "all")
    outputs = [value.name for value in model.outputs]
    wanted = [name for name in capture.tensors if name not in outputs]
    simulation, known, absent = prepare(model, target, wanted)
    run = open_session(
        simulation.model,
        outputs=[*outputs, *known],
        optimization=level,
        threads=int(threads),
        folder=model.path.parent,
    )

    def run_sample(sample: Sample) -> Mapping[str, np.ndarray]:
        return run(sample.arrays)

    yield Session(
        run=run_sample,
        disturbs="outputs marked" if capture.tensors else "none",
        absent=absent,
        environment={"onnxruntime": ort.__version__, "simulated": target.precision or "as typed"},
    )


def prepare(
    model: Model, target: Target, tensors: Sequence[str]
) -> tuple[Simulation, tuple[str, ...], tuple[Skip, ...]]:
    """The graph that `target` runs, those of `tensors` that it has, and what it lacks.

    Raises:
        ParityError: an option of the target is not known, or the model cannot be simulated so.
    """
    simulation = _simulation(model, target)
    known = _names(simulation.model)
    missing = (_absent(name) for name in tensors if name not in known)
    return simulation, tuple(name for name in tensors if name in known), (*simulation.notes, *missing)


def _simulation(model: Model, target: Target) -> Simulation:
    from parityscope.arithmetic.quantized import QUANTIZED
    from parityscope.arithmetic.simulation import detype, simulate
    from parityscope.backends._operators import library

    compiled = bool(library())
    overflow = target.option("overflow", "infinity")
    if overflow not in _OVERFLOW:
        raise ParityError(f"overflow={overflow!r} is not known", fix=f"use overflow={'|'.join(_OVERFLOW)}")
    if target.precision in QUANTIZED:
        return _quantized(model, target, compiled=compiled)
    if target.precision:
        bounded = target.option("range", "format")
        if bounded not in {"format", "unbounded"}:
            raise ParityError(f"range={bounded!r} is not known", fix="use range=format|unbounded")
        return simulate(
            model.graph(),
            target.precision,
            overflow=_OVERFLOW[overflow],
            bounded=bounded == "format",
            profile=target.option("profile", "none"),
            compiled=compiled,
        )
    if "profile" in dict(target.options):
        raise ParityError("a fusion profile needs a precision", fix="add :f16 or :bf16, or leave profile= out")
    if "overflow" in dict(target.options):
        raise ParityError("a model that runs as it is typed rounds no weights", fix="leave overflow= out, or add :f16")
    return detype(model.graph(), compiled=compiled)


def _quantized(model: Model, target: Target, *, compiled: bool) -> Simulation:
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
    return quantize_products(model.graph(), target.precision, dynamic_ranges(given), compiled=compiled)


def _names(model: ir.Model) -> set[str]:
    graph = model.graph
    computed = {str(value.name) for node in graph for value in node.outputs}
    return computed | set(graph.initializers) | {str(value.name) for value in graph.inputs}


def _absent(name: str) -> Skip:
    return Skip(
        what=f"tensor {name}",
        reason="the simulated graph has no such value: converting the model to a newer opset or inlining its "
        "functions replaced it",
    )


BACKEND = Backend(
    name="sim",
    title="Simulation of reduced precision (ONNX Runtime CPU)",
    options={
        "dynamic_range": "for int8 and fp8: the largest magnitude of each activation, a file or JSON",
        "optimization": "disabled, basic, extended or all (default): what ONNX Runtime does with the graph that simulates",
        "overflow": "weights beyond the format's range: infinity (default) or saturate",
        "profile": "whose fusion is simulated: none (default), openvino, onnxruntime-cuda or tensorrt",
        "range": "format (default); unbounded rounds as float16 does and keeps FP32's range",
        "threads": "threads inside an operator; 0 leaves it to the runtime",
    },
    precisions=("tf32", "f16", "bf16", "f8e4m3", "f8e5m2", "int8", "fp8"),
    observes=True,
    probe=_probe,
    open=_open,
)
