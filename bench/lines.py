"""How much single text lines suffer from FP16: the recogniser's errors over many rendered lines, and what it reads.

    python bench/lines.py [COUNT]        259 lines, those that bench/rivals.py searches and certifies on

Prints quantiles of the relative L2 error with everything in FP16 (simulated), in units of the budget of 3e-3, how many lines
read the same as in FP32 (best class a step, repetitions and blanks dropped), and for the worst lines the step of the sequence
that holds most of the error, with what FP32 gave its two best classes.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.evaluation.simulating import open_simulation
from proving.models.fetching import model_path
from proving.models.samples import text_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUDGET = 3e-3
COUNT, WORST = 259, 5
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    model = load_model(model_path("ocr-rec"))
    full = open_session(model.graph(), threads=2)
    low = open_simulation(arrange_precision(model.graph(), "f16"), threads=2)
    found, same = [], 0
    for line, sample in enumerate(islice(text_lines(np.random.default_rng(5)), count)):
        reference, candidate = (next(iter(run(sample).values()))[0].astype(np.float64) for run in (full, low))
        same += read(reference) == read(candidate)
        error = float(np.linalg.norm(candidate - reference) / np.linalg.norm(reference)) / BUDGET
        found.append((error, line, *worst_step(reference, candidate)))
    over = [error for error, *_ in found]
    print(f"{count} lines, {same} read the same; error in units of {BUDGET:g}:")
    for quantile in QUANTILES:
        print(f"  {quantile:.0%} of the lines: at most {np.quantile(over, quantile):.3g}")
    for error, line, step, share, best in sorted(found, reverse=True)[:WORST]:
        print(
            f"line {line}: {error:.3g}, {share:.0%} of it squared at step {step}, "
            f"where FP32 gives {best[0]:.2f} and {best[1]:.2f}"
        )


def read(scores: NDArray[np.float64]) -> list[int]:
    """The classes that are read: scores (steps, classes), class 0 is the blank."""
    best = scores.argmax(axis=1)
    return [int(one) for one, before in zip(best, [-1, *best[:-1]], strict=True) if one not in {before, 0}]


def worst_step(
    reference: NDArray[np.float64], candidate: NDArray[np.float64]
) -> tuple[int, float, tuple[float, float]]:
    """The step with most of the squared error, its share, and the reference's two best scores there."""
    squares = ((candidate - reference) ** 2).sum(axis=1)
    step = int(squares.argmax())
    first, second = np.sort(reference[step])[::-1][:2]
    return step, float(squares[step] / squares.sum()), (float(first), float(second))


if __name__ == "__main__":
    main()
