"""What one more precision assignment costs, and what a prediction costs, on trained models.

1. Switchable graphs: milliseconds of a run with nothing low, with everything low, with a random half low and with one
   node low, against the same graph with nothing low, against plain ONNX Runtime, and against rebuilding (a fresh
   simulation and session for each assignment).
2. `predict`: milliseconds a sample for one format, outputs alone and all layers, against plain ONNX Runtime, sessions
   opened once (the cost of one sample more: a forecast of some samples less one of a single sample).

    python bench/switchable.py [--formats f16,bf16] [--models ocr-cls,ocr-rec,ocr-det,minilm-i8]

Prints tables in Markdown; nothing is asserted. The least of several turns; all cores.
"""

from __future__ import annotations

import argparse
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
from parityscope.forecast import Settings, forecast
from parityscope.records import Target
from parityscope.testing.models import model_path, ocr_det_input, ocr_rec_input, page_image, rendered_line

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
MORE = 6  # samples of a long forecast
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
        for name, (model, one, _) in cases.items():
            for precision in formats:
                print(switchable_row(name, precision, model, one), flush=True)
        print("\n| model | format | ort ms | outputs alone | all layers | all layers, introduced |")
        print("|---|---|---|---|---|---|")
        for name, (model, one, more) in cases.items():
            for precision in formats:
                print(forecast_row(name, precision, model, one, more), flush=True)


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


def forecast_row(name: str, precision: str, model: Model, one: Inputs, more: Inputs) -> str:
    with open_target(model, Target(backend="ort"), Capture()) as session:
        plain = best_ms({"ort": lambda: session.run(one.sample(0))})["ort"]
    found = []
    for settings in (Settings(layers=False), Settings(introduced=False), Settings()):
        part = "layers" if settings.layers else "outputs"

        def cost(inputs: Inputs, settings: Settings = settings, part: str = part) -> float:
            return 1e3 * min(forecast(model, inputs, [precision], settings).seconds[part] for _ in range(2))

        found.append((cost(more) - cost(one)) / (MORE - 1) / plain)
    return f"| {name} | {precision} | {plain:.1f} | " + " | ".join(f"{ratio:.1f}x" for ratio in found) + " |"


def best_ms(works: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """The least milliseconds of each, taken in turns: what other programs do to the machine hits all alike."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def case_of(name: str, folder: Path) -> tuple[Model, Inputs, Inputs]:
    """The model, one sample, and several."""
    model = load_model(model_path(name))
    samples = folder / "samples"
    samples.mkdir(parents=True)
    for number in range(MORE):
        write_npz(samples / f"{number:06d}.npz", sample_of(name, model))
    one = load_inputs(model, str(samples), spool=folder / "one", samples=1)
    return model, one, load_inputs(model, str(samples), spool=folder / "more")


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
