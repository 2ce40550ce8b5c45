"""What one more precision assignment costs, and what a prediction costs, on trained models.

1. Switchable graphs: milliseconds of a run with nothing low, with everything low, with a random half low and with one
   node low, against the same graph with nothing low, against plain ONNX Runtime, and against rebuilding (a fresh
   simulation and session for each assignment).
2. `predict`: one sample in one format, outputs alone and all layers, against plain ONNX Runtime, sessions opened once.

    python bench/switchable.py [--formats f16,bf16] [--models ocr-cls,ocr-rec,ocr-det,minilm-i8]

Prints tables in Markdown; nothing is asserted. The least of several turns; all cores.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.simulation import simulate
from parityscope.backends import Capture
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.recording import open_target
from parityscope.backends.switching import Switchboard
from parityscope.case import Inputs, Model, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.forecast._rows import Crew
from parityscope.forecast.lockstep import Plan, _meters, _opened, _run_chunk
from parityscope.records import Target
from parityscope.testing.models import model_path, ocr_det_input, ocr_rec_input, page_image, rendered_line

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
THREADS = 2  # that measure, as `predict` has by default
MEMORY = 512 << 20  # bytes, likewise
SEED = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", default="f16,bf16")
    parser.add_argument("--models", default="ocr-cls,ocr-rec,ocr-det,minilm-i8")
    chosen = parser.parse_args()
    formats, models = chosen.formats.split(","), chosen.models.split(",")
    print("| model | format | nodes | ort ms | none low | one low | half low | all low | rebuilt | none low / ort |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        cases = {name: case_of(name, Path(scratch, name)) for name in models}
        for name, (model, one) in cases.items():
            for precision in formats:
                print(switchable_row(name, precision, model, one), flush=True)
        print("\n| model | format | ort ms | outputs alone | all layers | all layers, introduced |")
        print("|---|---|---|---|---|---|")
        for name, (model, one) in cases.items():
            for precision in formats:
                print(forecast_row(name, precision, model, one), flush=True)


def switchable_row(name: str, precision: str, model: Model, inputs: Inputs) -> str:
    sample = inputs.sample(0)
    board = Switchboard(model.graph(), precision)
    count = len(board.graph.nodes)
    assignments = {
        "none": np.zeros(count, np.bool_),
        "one": np.arange(count) == count // 2,
        "half": np.random.default_rng(SEED).random(count) < 0.5,
        "all": np.ones(count, np.bool_),
    }
    works: dict[str, Callable[[], object]] = {
        key: lambda low=low: board.run(sample, low) for key, low in assignments.items()
    }
    with open_target(model, Target(backend="ort"), Capture()) as session:
        best = best_ms({**works, "ort": lambda: session.run(sample)})

    def rebuild() -> None:
        open_session(simulate(model.graph(), precision).model)(sample.arrays)

    rebuilt = best_ms({"rebuild": rebuild}, rounds=3)["rebuild"]
    ratios = " | ".join(f"{best[key] / best['none']:.2f}x" for key in ("one", "half", "all"))
    return (
        f"| {name} | {precision} | {count} | {best['ort']:.1f} | {best['none']:.1f} ms | {ratios} | {rebuilt:.0f} ms "
        f"| {best['none'] / best['ort']:.2f}x |"
    )


def forecast_row(name: str, precision: str, model: Model, inputs: Inputs) -> str:
    """What one sample costs with all sessions open, all ways taken in turns."""
    sample = inputs.sample(0)
    with contextlib.ExitStack() as stack:
        crew = stack.enter_context(Crew.of(THREADS))
        plain = stack.enter_context(open_target(model, Target(backend="ort"), Capture()))
        simulated = stack.enter_context(open_target(model, Target(backend="sim", precision=precision), Capture()))
        names = [value.name for value in model.outputs]
        meters = _meters(plan_of(precision, model, inputs, introduced=False), names)

        def outputs() -> None:
            meters.formats[precision].add(names, plain.run(sample), simulated.run(sample), {}, crew)

        def layers(*, introduced: bool) -> Callable[[], object]:
            plan = plan_of(precision, model, inputs, introduced=introduced)
            tensors = list(model.sites)
            own = _meters(plan, tensors)
            chunks = _opened(plan, tensors, own)

            def run() -> None:
                held: dict[str, dict[str, np.ndarray]] = {"": {}, precision: {}}
                for chunk in chunks:
                    _run_chunk(chunk, sample, held, own, crew)

            return run

        best = best_ms(
            {
                "ort": lambda: plain.run(sample),
                "outputs": outputs,
                "layers": layers(introduced=False),
                "introduced": layers(introduced=True),
            }
        )
    ratios = " | ".join(f"{best[key] / best['ort']:.1f}x" for key in ("outputs", "layers", "introduced"))
    return f"| {name} | {precision} | {best['ort']:.1f} | {ratios} |"


def plan_of(precision: str, model: Model, inputs: Inputs, *, introduced: bool) -> Plan:
    return Plan(
        model=model,
        inputs=inputs,
        targets={precision: Target(backend="sim", precision=precision)},
        memory=MEMORY,
        threads=THREADS,
        introduced=introduced,
    )


def best_ms(works: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The least milliseconds of each, taken in turns: what other programs do to the machine hits all alike."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def case_of(name: str, folder: Path) -> tuple[Model, Inputs]:
    """The model and one sample."""
    model = load_model(model_path(name))
    samples = folder / "samples"
    samples.mkdir(parents=True)
    write_npz(samples / "000000.npz", sample_of(name, model))
    return model, load_inputs(model, str(samples), spool=folder / "one")


def sample_of(name: str, model: Model) -> dict[str, np.ndarray]:
    if name == "ocr-det":
        return dict(ocr_det_input(page_image(), (768, 384)))
    if name == "ocr-rec":
        return dict(ocr_rec_input(rendered_line("Tells why a deployed network disagrees")))
    if name == "ocr-cls":
        line = rendered_line("Tells why")
        resized = ocr_rec_input(line)["x"]
        return {"x": np.pad(resized, [(0, 0), (0, 0), (0, 0), (0, max(0, 192 - resized.shape[3]))])[..., :192]}
    generator = np.random.default_rng(SEED)
    words = {"mask": lambda shape: np.ones(shape, np.int64), "type": lambda shape: np.zeros(shape, np.int64)}
    arrays = {}
    for value in model.inputs:
        fill = next((make for key, make in words.items() if key in value.name), None)
        arrays[value.name] = fill((1, 64)) if fill else generator.integers(1000, 20000, (1, 64))
    return arrays


if __name__ == "__main__":
    main()
