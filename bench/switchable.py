"""What one more precision assignment costs, and what a prediction costs, on trained models.

1. Switchable graphs: milliseconds of a run with nothing low, with everything low, with a random half low and with one
   node low, against the same graph with nothing low, against plain ONNX Runtime, and against rebuilding (a fresh
   simulation and session for each assignment).
2. `predict`: one sample in one format, outputs alone, all layers, and all layers with what each introduces, against plain
   ONNX Runtime, sessions opened once.

    python bench/switchable.py [--formats f16,bf16] [--models ocr-cls,ocr-rec,...] [--seconds 1.5]

Prints tables in Markdown, with the medians over the models; nothing is asserted. Each time is the least of many turns, in
which all ways are taken one after another. In brackets stands the same ratio in CPU time, which hardly depends on what
else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from parityscope.forecast.together import opened

from parityscope.arithmetic.simulation import simulate
from parityscope.backends import Capture
from parityscope.backends._onnxruntime import open_session
from parityscope.backends.opening import open_target
from parityscope.backends.sizing import tensor_shapes
from parityscope.case import Inputs, Model, load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.evaluation.switching import Switchboard
from parityscope.forecast._rows import Crew
from parityscope.forecast.tallies import Tally
from parityscope.records import Site, Target
from parityscope.testing.models import model_path
from parityscope.testing.samples import SAMPLES, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREADS = 2  # that measure, as `predict` has by default
SEED = 5
LEAST_TURNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The least milliseconds of a way: by the clock, and of the processors."""

    wall: float
    cpu: float

    def over(self, other: Cost) -> Cost:
        """Both as multiples."""
        return Cost(wall=self.wall / other.wall, cpu=self.cpu / other.cpu)

    def __str__(self) -> str:
        return f"{self.wall:.2f}x ({self.cpu:.2f}x)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="f16,bf16")
    parser.add_argument("--models", default=",".join(SAMPLES))
    parser.add_argument("--seconds", type=float, default=1.5, help="for each way of a row")
    chosen = parser.parse_args()
    formats, names = chosen.formats.split(","), chosen.models.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        cases = {name: case_of(name, Path(scratch, name)) for name in names}
        ways = ("one low", "half low", "all low")
        print(f"| model | format | nodes | ort ms | none low ms | {' | '.join(ways)} | rebuilt | none low / ort |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        table(formats, cases, lambda *row: switchable_row(*row, chosen.seconds), "| | ")
        print("\n| model | format | ort ms | outputs alone | all layers | all layers, introduced |")
        print("|---|---|---|---|---|---|")
        table(formats, cases, lambda *row: forecast_row(*row, chosen.seconds), "| ")


def table(
    formats: Sequence[str],
    cases: dict[str, tuple[Model, Inputs]],
    row: Callable[[str, str, Model, Inputs], tuple[str, list[Cost]]],
    skipped: str,
) -> None:
    """Prints the rows of all models, and the medians of what they return."""
    for precision in formats:
        found: list[list[Cost]] = []
        for name, (model, one) in cases.items():
            try:
                text, costs = row(name, precision, model, one)
            except ParityError as error:
                text, costs = f"| {name} | {precision} | not run: {error.problem} |", []
            print(text, flush=True)
            found.extend([costs] if costs else [])
        medians = [
            Cost(wall=median(each.wall for each in column), cpu=median(each.cpu for each in column))
            for column in zip(*found, strict=True)
        ]
        print(
            f"| **median of {len(found)}** | {precision} | {skipped}| {' | '.join(f'**{each}**' for each in medians)} |"
        )


def switchable_row(name: str, precision: str, model: Model, inputs: Inputs, seconds: float) -> tuple[str, list[Cost]]:
    sample = inputs.sample(0)
    board = Switchboard(model.graph(), precision, folder=model.path.parent)
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
        best = costs_of({**works, "ort": lambda: session.run(sample)}, seconds)

    def rebuild() -> None:
        open_session(simulate(model.graph(), precision).model, folder=model.path.parent)(sample.arrays)

    rebuilt = costs_of({"rebuild": rebuild}, 0, turns=3)["rebuild"]
    costs = [best[key].over(best["none"]) for key in ("one", "half", "all")]
    beside = best["none"].over(best["ort"])
    ratios = " | ".join(map(str, costs))
    return (
        f"| {name} | {precision} | {count} | {best['ort'].wall:.1f} | {best['none'].wall:.1f} | {ratios} "
        f"| {rebuilt.wall:.0f} ms | {beside} |"
    ), costs


def forecast_row(name: str, precision: str, model: Model, inputs: Inputs, seconds: float) -> tuple[str, list[Cost]]:
    """What one sample costs with all sessions open."""
    sample = inputs.sample(0)
    target = Target(backend="sim", precision=precision)
    names = [value.name for value in model.outputs]
    with contextlib.ExitStack() as stack:
        crew = stack.enter_context(Crew.of(THREADS))
        plain = stack.enter_context(open_target(model, Target(backend="ort"), Capture()))
        simulated = stack.enter_context(open_target(model, target, Capture()))
        tally = tally_of(model, names)

        def outputs() -> None:
            tally.add(names, plain.run(sample), simulated.run(sample), {}, crew)

        def layers(*, introduced: bool) -> Callable[[], object]:
            tensors = list(model.sites)
            own = tally_of(model, tensors)
            pair = opened(model, target, tensors, tensor_shapes(model, sample, tensors), introduced=introduced)
            if pair is None:
                raise ParityError("reference and simulation cannot be joined here")
            return lambda: pair.add(sample.arrays, own, crew)

        best = costs_of(
            {
                "ort": lambda: plain.run(sample),
                "outputs": outputs,
                "layers": layers(introduced=False),
                "introduced": layers(introduced=True),
            },
            seconds,
        )
    costs = [best[key].over(best["ort"]) for key in ("outputs", "layers", "introduced")]
    return f"| {name} | {precision} | {best['ort'].wall:.1f} | {' | '.join(map(str, costs))} |", costs


def tally_of(model: Model, names: Sequence[str]) -> Tally:
    nowhere = {name: Site(tensor=name, node="", op_type="", index=-1) for name in names}
    return Tally({name: model.sites.get(name, nowhere[name]) for name in names}, ranged=True)


def costs_of(works: dict[str, Callable[[], object]], seconds: float, turns: int = LEAST_TURNS) -> dict[str, Cost]:
    """The least of each, taken in turns: what other programs do to the machine hits all alike."""
    wall, cpu = dict.fromkeys(works, float("inf")), dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + seconds * len(works)
    while turns > 0 or time.perf_counter() < end:
        turns -= 1
        for name, work in works.items():
            started, spent = time.perf_counter(), time.process_time()
            work()
            cpu[name] = min(cpu[name], 1e3 * (time.process_time() - spent))
            wall[name] = min(wall[name], 1e3 * (time.perf_counter() - started))
    return {name: Cost(wall=wall[name], cpu=cpu[name]) for name in works}


def case_of(name: str, folder: Path) -> tuple[Model, Inputs]:
    """The model and one sample."""
    model = load_model(model_path(name))
    samples = folder / "samples"
    samples.mkdir(parents=True)
    write_npz(samples / "000000.npz", sample_of(name))
    return model, load_inputs(model, str(samples), spool=folder / "one")


if __name__ == "__main__":
    main()
