"""How well the simulation predicts the error of a real engine, tensor by tensor.

    python bench/fidelity.py [--models ID,...] [--engines TARGET,...] [--profiles NAME,...] [-o FILE.json]

For each model of the catalogue (or NAME=MODEL.onnx,INPUT.npz), each engine and each fusion profile: the relative L2
error that the simulation predicts, over the one measured, of every tensor of more than 64 elements in which a layer of
the executed graph ends. "follow" is the simulation that follows the engine's own executed graph.

Tensors are observed a few at a time, because marking a tensor changes what an engine does. A chunk counts if the error
of the outputs stays within a factor of 1.1 of the undisturbed run's; one that does not is halved until it does or holds
one tensor. The share of tensors that count is printed. OpenVINO keeps everything between an output and the convolution
or product above it in FP32: a tensor that it stores in bfloat16 or float16 is therefore read through a conversion to
that type, which takes this exception away (`Graph::EnforceInferencePrecision`, intel_cpu/src/graph.cpp). In float16
everything that is given back passes through float16, what is computed and stored in FP32 too; predicted tensors are
rounded like that before they are compared.

The error of a whole network's output on one input is one draw: rounding luck alone moved that of the PP-OCRv4 recogniser
by a factor of 2.5. With `--draws N` the errors of outputs are root mean squares over N inputs, the sample and neighbours
of it (float inputs times 1 + 2^-12 times a normal number, less than float16 and bfloat16 resolve), on the engine and
predicted.

In the JSON file every point is a tensor, so that it can be plotted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import openvino as ov
from openvino.preprocess import PrePostProcessor

from parityscope.arithmetic import format_named, round_to
from parityscope.arithmetic.fusion.following import ends, follow
from parityscope.arithmetic.simulation import PRECISIONS, simulate
from parityscope.backends import Capture
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.openvino import _executed as executed_graph
from parityscope.backends.recording import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample
from parityscope.case.graph import values
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.testing.models import model_path
from parityscope.testing.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parityscope.case import Model
    from parityscope.records import ExecutedGraph, Target

    Arrays = Mapping[str, np.ndarray]
    Observe = Callable[[Sequence[str]], Arrays]

MODELS = "ocr-rec,ocr-det,ocr-cls,vad-18,vad-seq,magika,minilm-i8,layout,pitch,dnsmos"
MIN_ELEMENTS = 64  # tensors up to this size are too few numbers for a relative error in L2
WITHIN = 1.1  # how far the outputs' error may move when a chunk is observed
# Below this share of the format's unit roundoff an error is FP32 noise and not the format's. Chosen.
NOISE = 2.0**-7
_OPENVINO_TYPES = {"bf16": ov.Type.bf16, "f16": ov.Type.f16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A candidate made ready: what it executed, in which tensors its layers end, and how to observe some of them."""

    executed: ExecutedGraph | None
    precision: str
    tensors: Mapping[str, str]  # name -> kind of layer
    observe: Observe
    reads: str = ""  # the format that an observed tensor is read in, whatever it is stored in


def main() -> int:
    """Runs the measurement and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--engines", default="openvino:bf16")
    parser.add_argument("--profiles", default="none,follow,openvino")
    parser.add_argument("--chunk", type=int, default=6, help="tensors observed at a time")
    parser.add_argument("--draws", type=int, default=1, help="inputs over which the errors of outputs are pooled")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    profiles = arguments.profiles.split(",")
    for engine in arguments.engines.split(","):
        for name in arguments.models.split(","):
            try:
                run = measure(name, engine, profiles, arguments.chunk, arguments.draws)
            except ParityError as error:
                print(f"{name} {engine}: {error}", file=sys.stderr)
                runs.append({"model": name, "engine": engine, "skipped": error.problem})
                continue
            runs.append(run)
            show(run, profiles)
    for engine in arguments.engines.split(","):
        for profile in profiles:
            pooled = summary(
                [point for run in runs if run["engine"] == engine for point in run.get("points", [])], profile
            )
            print(f"pooled {engine} {profile}: {line(pooled)}")
    if arguments.output:
        arguments.output.write_text(json.dumps({"runs": runs}, indent=1, allow_nan=False))
    return 0


def measure(name: str, engine: str, profiles: Sequence[str], chunk: int, draws: int = 1) -> dict[str, Any]:
    """One model on one engine: every tensor measured, and predicted under each profile."""
    model, sample = case(name)
    outputs = [value.name for value in model.outputs]
    candidate = prepared(model, sample, parse_target(engine.replace("{model}", name)))
    floats = [tensor for tensor in candidate.tensors if tensor not in outputs]
    reference = open_session(model.graph(), outputs=[*outputs, *floats], folder=model.path.parent)(sample.arrays)
    floats = [
        tensor for tensor in floats if reference[tensor].dtype.kind == "f" and reference[tensor].size > MIN_ELEMENTS
    ]
    plain = candidate.observe(())
    undisturbed = {tensor: distance(reference[tensor], plain[tensor]) for tensor in outputs}
    found: dict[str, tuple[float, bool]] = {}
    for start in range(0, len(floats), chunk):
        observe(candidate, floats[start : start + chunk], reference, undisturbed, found)
    predicted = {
        profile: predict(model, sample, candidate, profile, [*outputs, *floats], reference) for profile in profiles
    }
    pooled = pool(model, sample, parse_target(engine.replace("{model}", name)), profiles, draws)
    points = [
        {
            "tensor": tensor,
            "layer": candidate.tensors[tensor],
            "elements": int(reference[tensor].size),
            "measured": finite(measured),
            "counts": counts,
            **{profile: finite(predicted[profile][tensor]) for profile in profiles},
        }
        for tensor, (measured, counts) in found.items()
    ]
    return {
        "model": name,
        "engine": engine,
        "executed": candidate.precision,
        "floor": NOISE * format_named(candidate.precision).unit_roundoff,
        "outputs": [
            {"tensor": tensor, "measured": finite(pooled["measured"][tensor])}
            | {profile: finite(pooled[profile][tensor]) for profile in profiles}
            for tensor in outputs
            if reference[tensor].dtype.kind == "f"
        ],
        "points": [point | {"floor": NOISE * format_named(candidate.precision).unit_roundoff} for point in points],
    }


def pool(
    model: Model, sample: Sample, target: Target, profiles: Sequence[str], draws: int
) -> dict[str, dict[str, float]]:
    """The errors of outputs, "measured" and by profile: root mean squares over the sample and neighbours of it."""
    outputs = [value.name for value in model.outputs]
    run_reference = open_session(model.graph(), outputs=outputs, folder=model.path.parent)
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(draws):
        near = neighbour(sample, number)
        candidate = prepared(model, near, target)
        reference = run_reference(near.arrays)
        arrays = candidate.observe(())
        measured = {tensor: distance(reference[tensor], arrays[tensor]) for tensor in outputs}
        found.setdefault("measured", []).append(measured)
        for profile in profiles:
            found.setdefault(profile, []).append(predict(model, near, candidate, profile, outputs, reference))
    return {
        kind: {tensor: math.sqrt(sum(each[tensor] ** 2 for each in errors) / draws) for tensor in outputs}
        for kind, errors in found.items()
    }


def neighbour(sample: Sample, number: int) -> Sample:
    """Another input close to the sample; number 0 is the sample itself."""
    generator = np.random.default_rng(number)
    arrays = {
        name: (array * (1 + 2.0**-12 * generator.standard_normal(array.shape))).astype(array.dtype)
        if number and array.dtype.kind == "f"
        else array
        for name, array in sample.arrays.items()
    }
    return Sample(index=number, name=sample.name, arrays=arrays)


def case(name: str) -> tuple[Model, Sample]:
    """A model of the catalogue with its sample, or NAME=MODEL.onnx+INPUT.npz."""
    title, _, files = name.partition("=")
    if files:
        path, _, data = files.partition("+")
        with np.load(data, allow_pickle=False) as arrays:
            held = dict(arrays)
        return load_model(path), Sample(index=0, name=title, arrays=held)
    return load_model(model_path(name)), Sample(index=0, name=name, arrays=sample_of(name))


def prepared(model: Model, sample: Sample, target: Target) -> Engine:
    """The candidate, on one sample."""
    if target.backend == "openvino":
        executed = executed_graph(ov.Core().compile_model(str(model.path), "CPU", settings(target)), target.precision)
        kernels = {
            value: kernel.stored for kernel in follow(executed, model.graph()).kernels for value in kernel.values
        }
        layers = ends(executed, model.graph())
        places = {tensor: layer.layer_type for tensor, layer in layers.items()}
        stored = {tensor: kernels.get(tensor, "f32") for tensor in layers}
        return Engine(
            executed=executed,
            precision=executed.executed,
            tensors=places,
            observe=lambda names: openvino_run(model, sample, target, {name: stored[name] for name in names}),
            reads="f16" if executed.executed == "f16" else "",
        )
    with open_target(model, target, Capture()) as session:
        seen = session.executed
    order = [str(value.name) for value in values(model.graph())]
    layers = {} if seen is None else ends(seen, model.graph())

    def observe_some(names: Sequence[str]) -> Arrays:
        with open_target(model, target, Capture(tensors=tuple(names))) as session:
            return dict(session.run(sample))

    return Engine(
        executed=seen,
        precision=target.precision,
        tensors={tensor: layer.layer_type for tensor, layer in layers.items()} if layers else dict.fromkeys(order, ""),
        observe=observe_some,
    )


def openvino_run(model: Model, sample: Sample, target: Target, stored: Mapping[str, str]) -> Arrays:
    """The outputs, and the tensors of `stored`, each read in the format in which it is stored."""
    core = ov.Core()
    source = core.read_model(str(model.path))
    declared = [value.name for value in model.outputs]
    ports = {name: port for node in source.get_ordered_ops() for port in node.outputs() for name in port.get_names()}
    names = [name for name in stored if name in ports]
    unique: dict[tuple[str, int], int] = {}
    for name in names:
        key = (ports[name].get_node().get_friendly_name(), ports[name].get_index())
        unique.setdefault(key, len(unique))
    source.add_outputs(list(unique))
    places = {
        name: len(declared) + unique[ports[name].get_node().get_friendly_name(), ports[name].get_index()]
        for name in names
    }
    steps = PrePostProcessor(source)
    for name in names:
        if stored[name] in _OPENVINO_TYPES:
            steps.output(places[name]).tensor().set_element_type(_OPENVINO_TYPES[stored[name]])
    request = core.compile_model(steps.build(), "CPU", settings(target)).create_infer_request()
    request.infer({value.name: sample.arrays[value.name] for value in model.inputs})

    def read(index: int) -> np.ndarray:
        tensor = request.get_output_tensor(index)
        brain = tensor.get_element_type() == ov.Type.bf16
        return np.array(tensor.data.view(ml_dtypes.bfloat16) if brain else tensor.data)

    return {
        **{name: read(index) for index, name in enumerate(declared)},
        **{name: read(places[name]) for name in names},
    }


def settings(target: Target) -> dict[str, str]:
    """OpenVINO's settings: those of the backend, and no quantization of activations on the fly.

    By default OpenVINO quantizes the inputs of products with compressed weights to eight bits; that is another
    arithmetic than the one that is predicted here.
    """
    return {
        "INFERENCE_PRECISION_HINT": target.precision,
        "PERFORMANCE_HINT": "LATENCY",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }


def observe(
    candidate: Engine,
    names: Sequence[str],
    reference: Arrays,
    undisturbed: Mapping[str, float],
    found: dict[str, tuple[float, bool]],
) -> None:
    """Measures `names` together, or, if that moves the outputs, in halves."""
    try:
        arrays = candidate.observe(names)
    except (ParityError, RuntimeError):
        arrays = {}
    moved = not arrays or any(
        not undisturbed[tensor] / WITHIN <= distance(reference[tensor], arrays[tensor]) <= undisturbed[tensor] * WITHIN
        for tensor in undisturbed
        if reference[tensor].dtype.kind == "f"
    )
    if moved and len(names) > 1:
        for half in (names[: len(names) // 2], names[len(names) // 2 :]):
            observe(candidate, half, reference, undisturbed, found)
        return
    for name in names:
        if name in arrays and arrays[name].shape == reference[name].shape:
            found[name] = (distance(reference[name], arrays[name]), not moved)


def predict(
    model: Model, sample: Sample, candidate: Engine, profile: str, names: Sequence[str], reference: Arrays
) -> dict[str, float]:
    """The simulated relative error of each of `names`."""
    if profile == "follow" and candidate.executed is None:
        raise ParityError("the engine tells no executed graph to follow", fix="leave follow out of --profiles")
    if candidate.precision not in PRECISIONS:
        raise ParityError(f"it runs in {candidate.precision or 'no declared precision'}, which is not simulated")
    chosen = follow(candidate.executed, model.graph()) if profile == "follow" and candidate.executed else profile
    simulation = simulate(model.graph(), candidate.precision, profile=chosen)
    arrays = open_session(simulation.model, outputs=list(names), folder=model.path.parent)(sample.arrays)
    declared = {value.name for value in model.outputs}

    def seen(name: str) -> np.ndarray:
        if not candidate.reads or name in declared:
            return arrays[name]
        return round_to(arrays[name], format_named(candidate.reads))

    return {name: distance(reference[name], seen(name)) for name in names}


def distance(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Relative L2 distance in float64; infinity where anything is not finite, NaN for a reference of noughts."""
    r, c = (np.asarray(array, dtype=np.float64).ravel() for array in (reference, candidate))
    if not np.isfinite(c).all():
        return math.inf
    norm = float(np.linalg.norm(r))
    return float(np.linalg.norm(c - r)) / norm if norm else math.nan


def finite(number: float) -> float | str:
    """A number for strict JSON."""
    return number if math.isfinite(number) else str(number)


def usable(points: Sequence[Mapping[str, Any]], profile: str) -> tuple[np.ndarray, np.ndarray]:
    """Measured and predicted errors of the points that count and are the format's."""
    chosen = [
        (point["measured"], point[profile])
        for point in points
        if point["counts"]
        and isinstance(point["measured"], float)
        and isinstance(point.get(profile), float)
        and min(point["measured"], point[profile]) > 0
        and max(point["measured"], point[profile]) > point["floor"]
    ]
    return np.array([m for m, _ in chosen]), np.array([p for _, p in chosen])


def summary(points: Sequence[Mapping[str, Any]], profile: str) -> dict[str, float]:
    """Median, 10th and 90th percentile of predicted over measured, and the correlation of their logarithms."""
    measured, predicted = usable(points, profile)
    share = sum(bool(point["counts"]) for point in points) / len(points) if points else math.nan
    if len(measured) < 3:  # fewer points have no correlation to speak of
        return {"count": len(measured), "share": share}
    ratio = predicted / measured
    low, middle, high = np.quantile(ratio, (0.1, 0.5, 0.9))
    correlation = float(np.corrcoef(np.log(measured), np.log(predicted))[0, 1])
    return {"count": len(ratio), "share": share, "median": middle, "p10": low, "p90": high, "correlation": correlation}


def line(found: Mapping[str, float]) -> str:
    """One row of the table."""
    if "median" not in found:
        return f"{int(found['count'])} tensors are too few"
    return (
        f"median {found['median']:.3f}  p10-p90 {found['p10']:.2f}-{found['p90']:.2f}  r {found['correlation']:.3f}  "
        f"{int(found['count'])} tensors  {found['share']:.0%} count"
    )


def show(run: Mapping[str, Any], profiles: Sequence[str]) -> None:
    """Prints what was found on one model."""
    print(f"{run['model']} {run['engine']} (executed {run['executed']})")
    for profile in profiles:
        ratios = [
            f"{output[profile] / output['measured']:.2f}"
            for output in run["outputs"]
            if isinstance(output["measured"], float) and isinstance(output[profile], float) and output["measured"] > 0
        ]
        print(f"  {profile:<18} {line(summary(run['points'], profile))}  outputs {' '.join(ratios)}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
