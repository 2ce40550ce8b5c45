"""The latency of a cell's candidate, measured alike for every cell: warmed up, run in turns with the reference, the median."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.verification.latency import measure_latency, why_not_timed

if TYPE_CHECKING:
    from parityscope.examination import Examination

__all__ = ["time_candidate"]

_BUDGET_S = 1.0  # of a cell; chosen: at least ten rounds are run, however long they take


def time_candidate(asked: Examination) -> float | None:
    """Seconds of a run of the candidate; None where nobody times it (simulations, recordings) or it cannot run."""
    if why_not_timed(asked.reference, asked.candidate) is not None:
        return None
    try:
        found = measure_latency(
            asked.case,
            asked.reference,
            asked.candidate,
            budget=_BUDGET_S,
            clock=time.perf_counter,
            seed=asked.request.seed,
        )
    except ParityError:
        return None  # what it fails on, its study tells
    return found.after.median
