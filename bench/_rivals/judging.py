"""How far off a model is, whoever wrote it: by what `parityscope evaluate` does, in units of the budget.

The file is freshly loaded, de-typed (`arithmetic.simulation.arrange_precision`: every value that is float16 or bfloat16 by
its own
type is really rounded to it) and run in FP32. Beside it stands what ONNX Runtime's CPU provider makes of the file as it is,
which is what a tool that validates there goes by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.case import load_model
from parityscope.errors import ParityError
from parityscope.evaluation.simulating import open_simulation
from parityscope.repairs.search.judging import worst_excess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy as np

    from parityscope.case import Sample
    from parityscope.repairs.search.judging import Yardstick

    Outputs = Mapping[str, np.ndarray]
    Run = Callable[[Mapping[str, np.ndarray]], Outputs]

THREADS = 1  # so that seconds of CPU are those of the work


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The worst excess over `count` samples and how many of them miss the budget (an excess above 1)."""

    worst: float
    misses: int
    count: int


def faithful(path: Path) -> Run:
    """The file `path`, with what it stores in a low format really rounded.

    Raises:
        ParityError: the file cannot be read, or the runtime refuses the de-typed model.
    """
    return open_simulation(arrange_precision(load_model(path).graph(), None), threads=THREADS)


def as_it_stands(path: Path) -> Run:
    """The file itself in ONNX Runtime's CPU provider.

    Raises:
        ParityError: the runtime refuses it.
    """
    outputs = [value.name for value in load_model(path).outputs]
    return open_path(path, outputs=outputs, threads=THREADS)


def judged(held: Yardstick, samples: Iterable[tuple[Sample, Outputs]], run: Run) -> Judged:
    """Holds `run` against the reference's outputs on each sample; a sample on which it fails counts as infinitely off."""
    over = [_excess(held, reference, sample, run) for sample, reference in samples]
    return Judged(worst=max(over, default=math.nan), misses=sum(not one <= 1 for one in over), count=len(over))


def _excess(held: Yardstick, reference: Outputs, sample: Sample, run: Run) -> float:
    try:
        made = run(sample.arrays)
    except ParityError:
        return math.inf
    # Some writers rename outputs; their order is the interface then.
    named = made if set(made) == set(reference) else dict(zip(reference, made.values(), strict=True))
    return worst_excess(held, reference, named)
