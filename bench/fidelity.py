"""How well the simulation predicts the error of a real engine, tensor by tensor.

    python bench/fidelity.py [--models ID,...] [--engines TARGET,...] [--profiles NAME,...] [-o FILE.json]
    python bench/fidelity.py --pack FOLDER [--models ID,...]
    python bench/fidelity.py --again FILE.json [--models ID,...] [--draws N] -o FILE.json
    python bench/fidelity.py --outputs --draws N [--models ID,...] [--engines TARGET,...] [--profiles NAME,...]

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
by a factor of 2.5, and that of a single number has no size of its own. With `--draws N` the errors of outputs are root mean
squares over N draws, on the engine and predicted: the network and its sample as they are, and with all parameters and inputs
moved by less than the format resolves, each against its own reference. `--outputs` measures nothing else, and prints beside it
what single draws say, and what `predict` does, which draws grids (`parityscope.expectation.drawing`).

In the JSON file every point is a tensor, so that it can be plotted. `--again FILE` keeps what such a file says was measured and
predicts it anew (not "follow", which needs the engine): predictions need no engine, and a better one no second measurement.

For a machine without a network: `--pack FOLDER` writes NAME.onnx, NAME.f16.onnx (strongly typed) and NAME.npz, and prints what
to give as `--models` there, in whose place "{model}" in a target has the name
(`--engines "ort:f16?device=cuda&model=FOLDER/{model}.f16.onnx"`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _fidelity.cases import case, drawn, pack
from _fidelity.engines import Engine, prepared

from parityscope.arithmetic import format_named, round_to
from parityscope.arithmetic.fusion import known_profiles as fusion_profiles
from parityscope.arithmetic.fusion.following import follow_executed
from parityscope.arithmetic.simulation import PRECISIONS, arrange_precision
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.backends.targets import parse_target
from parityscope.case import Inputs
from parityscope.errors import ParityError
from parityscope.evaluation.simulating import open_simulation
from parityscope.expectation.drawing import drawn_errors, drawn_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _fidelity.engines import Arrays

    from parityscope.case import Model, Sample
    from parityscope.records import Target

MODELS = (
    "ocr-rec,ocr-det,ocr-cls,vad-18,vad-seq,magika,minilm-i8,layout,pitch,dnsmos,lite0,plcmos,pitch-noisy,dnsmos-noisy"
)
MIN_ELEMENTS = 64  # tensors up to this size are too few numbers for a relative error in L2
WITHIN = 1.1  # how far the outputs' error may move when a chunk is observed
# Below this share of the format's unit roundoff an error is FP32 noise and not the format's. Chosen.
NOISE = 2.0**-7


def main() -> int:
    """Runs the measurement and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--engines", default="openvino:bf16")
    parser.add_argument("--profiles", default="none,follow,openvino")
    parser.add_argument("--chunk", type=int, default=6, help="tensors observed at a time")
    parser.add_argument("--draws", type=int, default=1, help="inputs over which the errors of outputs are pooled")
    parser.add_argument("--outputs", action="store_true", help="measure outputs alone")
    parser.add_argument("--pack", type=Path, help="write the models, FP16 copies of them and the inputs to this folder")
    parser.add_argument("--again", type=Path, help="predict anew what this file says was measured")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.pack:
        print(",".join(pack(name, arguments.pack) for name in arguments.models.split(",")))
        return 0
    if arguments.again:
        return predict_again(arguments.again, arguments.models.split(","), arguments.draws, arguments.output)
    profiles = arguments.profiles.split(",")
    if arguments.outputs:
        for engine in arguments.engines.split(","):
            for name in arguments.models.split(","):
                show_draws(name, engine, profiles, arguments.draws)
        return 0
    runs: list[dict[str, Any]] = []
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
        arguments.output.write_text(json.dumps({"runs": runs}, indent=1, allow_nan=False), encoding="utf-8")
    return 0


def measure(name: str, engine: str, profiles: Sequence[str], chunk: int, draws: int = 1) -> dict[str, Any]:
    """One model on one engine: every tensor measured, and predicted under each profile."""
    model, sample = case(name)
    outputs = [value.name for value in model.outputs]
    candidate = prepared(model, sample, _target(engine, name.partition("=")[0]))
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
    pooled = {
        kind: pooled_errors(errors) for kind, errors in every_draw(model, sample, engine, profiles, draws).items()
    }
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


def predict_again(file: Path, names: Sequence[str], draws: int, output: Path | None) -> int:
    """The runs of a file with their predictions made anew; those of models that are not named stay as they are."""
    runs: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["runs"]
    for run in runs:
        name = run["model"].partition("=")[0]
        if name not in names or not run.get("points"):
            continue
        model, sample = case(name)
        outputs = [each["tensor"] for each in run["outputs"]]
        tensors = [each["tensor"] for each in run["points"]]
        profiles = [key for key in run["outputs"][0] if key in fusion_profiles()]
        engine = Engine(
            executed=None,
            precision=run["executed"],
            tensors={},
            observe=lambda _: {},
            reads="f16" if run["engine"].startswith("openvino") and run["executed"] == "f16" else "",
        )
        reference = open_session(model.graph(), outputs=[*outputs, *tensors], folder=model.path.parent)
        known = reference(sample.arrays)
        for profile in profiles:
            found = predict(model, sample, engine, profile, [*outputs, *tensors], known)
            errors = []
            with tempfile.TemporaryDirectory() as folder:
                for number in range(draws):
                    moved, near = drawn(model, sample, number, format_named(run["executed"]), Path(folder))
                    right = open_session(moved.graph(), outputs=outputs, folder=moved.path.parent)(near.arrays)
                    errors.append(predict(moved, near, engine, profile, outputs, right))
            for point in run["points"]:
                point[profile] = finite(found[point["tensor"]])
            for each in run["outputs"]:
                each[profile] = finite(math.sqrt(sum(error[each["tensor"]] ** 2 for error in errors) / draws))
        show(run, profiles)
    if output:
        output.write_text(json.dumps({"runs": runs}, indent=1, allow_nan=False), encoding="utf-8")
    return 0


def every_draw(
    model: Model, sample: Sample, engine: str, profiles: Sequence[str], draws: int
) -> dict[str, list[dict[str, float]]]:
    """The errors of outputs in each draw, "measured" and by profile."""
    outputs = [value.name for value in model.outputs]
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(draws):
            moved, near = drawn(model, sample, number, format_named(parse_target(engine).precision), Path(folder))
            # A typed copy of a moved network lies beside it; that of the network itself where the target says.
            its = f"{Path(folder) / near.name}.f16.onnx" if number else ""
            candidate = prepared(moved, near, _target(engine, sample.name, its))
            reference = open_session(moved.graph(), outputs=outputs, folder=moved.path.parent)(near.arrays)
            arrays = candidate.observe(())
            measured = {tensor: distance(reference[tensor], arrays[tensor]) for tensor in outputs}
            found.setdefault("measured", []).append(measured)
            for profile in profiles:
                found.setdefault(profile, []).append(predict(moved, near, candidate, profile, outputs, reference))
    return found


def pooled_errors(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each output, the root mean square over draws."""
    return {tensor: math.sqrt(sum(each[tensor] ** 2 for each in errors) / len(errors)) for tensor in errors[0]}


def show_draws(name: str, engine: str, profiles: Sequence[str], draws: int) -> None:
    """Prints, of each output of a model, predicted over measured: pooled, of the first draw, and how far the draws lie apart."""
    model, sample = case(name)
    precision = parse_target(engine).precision
    found = every_draw(model, sample, engine, profiles, draws)
    measured = pooled_errors(found["measured"])
    for tensor in measured:
        sizes = [each[tensor] for each in found["measured"]]
        print(f"{name} {engine} {tensor}: measured {measured[tensor]:.3g}, draws {min(sizes):.2g} to {max(sizes):.2g}")
        for profile in profiles:
            predicted = [each[tensor] for each in found[profile]]
            if profile != "follow" and draws > 1:
                drawn = drawn_outputs(
                    model, only(sample), [0], precision, [tensor], draws - 1, bounded=True, profile=profile
                )
                again = drawn_errors(drawn, [tensor], draws - 1)
                each = [predicted[0], *again.get(tensor, ())]
                print(
                    f"  {profile:<18} as predict draws it {math.hypot(*each) / len(each) ** 0.5 / measured[tensor]:.2f}"
                )
            ratios = [one / other for one, other in zip(predicted, sizes, strict=True) if other]
            if ratios:
                print(
                    f"  {profile:<18} pooled {pooled_errors(found[profile])[tensor] / measured[tensor]:.2f}, first draw "
                    f"{ratios[0]:.2f}, within 2 in {sum(0.5 <= each <= 2 for each in ratios)} of {len(ratios)} draws"
                )
    sys.stdout.flush()


def only(sample: Sample) -> Inputs:
    """A data set of one sample."""
    return Inputs(origin=sample.name, names=tuple(sample.arrays), sha256="", indices=(0,), read=lambda _: sample)


def _target(engine: str, name: str, its: str = "") -> Target:
    """The target called `engine` of the model `name`; `its` is the file to run in place of the one that it names."""
    target = parse_target(engine.replace("{model}", name))
    if not its or not target.option("model", ""):
        return target
    return replace(target, options=tuple((key, its if key == "model" else held) for key, held in target.options))


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
    chosen = (
        follow_executed(candidate.executed, model.graph()) if profile == "follow" and candidate.executed else profile
    )
    simulation = arrange_precision(model.graph(), candidate.precision, profile=chosen)
    arrays = open_simulation(simulation, list(names))(sample.arrays)
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
