"""What a sweep backwards costs beside finite differences over shared prefixes, and whether they rank nodes alike.

    python -m bench.sensitivities [MODEL ...]

For each model, on one sample: the squared sensitivity of every node that can be in FP16, by `repairs.search.reverse` (one sweep
with four projections) and by a world for each node in which it alone is low (worlds share what comes before their node; twelve
at a time). Printed are processor seconds, their ratio, and Spearman's correlation of the two rankings.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

from parityscope.case import Sample, load_model
from parityscope.evaluation.evaluating import run_world, run_worlds
from parityscope.evaluation.switching import Switchboard
from parityscope.records import Budget, Policy
from parityscope.repairs.search.judging import make_yardstick
from parityscope.repairs.search.reverse import Reverse
from proving.models.fetching import model_path
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Model

_TOGETHER = 12  # worlds


def main() -> None:
    """Prints a row for each model that is named."""
    print("| model | nodes | sweep | finite differences | ratio | rank correlation |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or ["magika", "pitch", "ocr-rec"]:
        model = load_model(model_path(name))
        arrays = sample_of(name)
        swept, seconds = by_sweep(model, arrays)
        measured, slower = by_differences(model, arrays)
        both = [each for each in swept if math.isfinite(measured.get(each, math.nan))]
        alike = spearmanr([swept[each] for each in both], [measured[each] for each in both]).statistic
        print(
            f"| {name} | {len(both)} | {seconds:.2f} s | {slower:.2f} s | {slower / seconds:.1f} | {alike:.2f} |",
            flush=True,
        )


def by_sweep(model: Model, arrays: Mapping[str, np.ndarray]) -> tuple[Mapping[str, float], float]:
    """Squared sensitivities by node, and the processor seconds of the second of two sweeps."""
    board = Switchboard(model.graph(), "f16", threads=1)
    plain = run_world(board.world("plain", []), arrays, board.program.outputs, board.sessions)
    held = make_yardstick(
        Policy(budgets=(Budget(output="", metric="rel_l2", limit=1e-3, reason=""),)), {}, [plain], None
    )
    reverse = Reverse(graph=model.graph, low="f16", held=held, threads=1, seed=0)
    sample = Sample(index=0, name="s", arrays=dict(arrays))
    found = None
    for _ in range(2):  # the first one compiles
        started = time.process_time()
        found = reverse.estimate([sample], [plain])
        seconds = time.process_time() - started
    return ({} if found is None else found.squared), seconds


def by_differences(model: Model, arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, float], float]:
    """The squared relative error of the outputs with each node alone low, and the processor seconds."""
    board = Switchboard(model.graph(), "f16", threads=1)
    outputs = board.program.outputs
    names = [node.name for node in board.graph.nodes]
    plain = run_world(board.world("plain", []), arrays, outputs, board.sessions)
    found: dict[str, float] = {}
    started = time.process_time()
    for start in range(0, len(names), _TOGETHER):
        some = names[start : start + _TOGETHER]
        given = run_worlds([board.world(name, {name}) for name in some], arrays, outputs, board.sessions)
        for name, each in zip(some, given, strict=True):
            errors = [
                float(np.linalg.norm(each[out].astype(float) - plain[out]) / np.linalg.norm(plain[out].astype(float)))
                for out in outputs
                if plain[out].dtype.kind == "f"
            ]
            found[name] = max(errors) ** 2
    return found, time.process_time() - started


if __name__ == "__main__":
    main()
