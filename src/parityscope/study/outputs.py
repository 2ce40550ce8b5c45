"""Reference and candidate side by side on every sample, outputs only, undisturbed: what the verdict rests on."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from parityscope.study._output_run import COMPARING, answer_closing, asking_of, finish_run, open_sides
from parityscope.study.sample_tasks import FIRST_SAMPLES, WORST_SAMPLES, Found, compare_samples, load_loops, tell_sides
from parityscope.study.sampling import is_sure
from parityscope.workers import group_samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.examination import Examination, OutputRun
    from parityscope.study._output_run import Closed, Closing

__all__ = ["FIRST_SAMPLES", "WORST_SAMPLES", "error_by_sample", "run_outputs", "worst_sample"]


def run_outputs(examination: Examination, *, inspect: bool = False, partly: bool = False) -> OutputRun:
    """Runs both targets on every sample and compares the outputs that both have, in this process or in workers.

    The candidate runs the first sample twice: its own spread is known before anything is blamed. `inspect` asks it what it
    really runs also where that takes another session, unless it is to run in FP32 and gives what that does. `partly` goes on
    where the candidate gives nothing for a sample.

    Raises:
        ParityError: a side cannot run (with `partly`: on any sample), or no output is there on both sides.
    """
    if examination.request.workers:
        from parityscope.study._shared_outputs import run_in_workers

        return run_in_workers(examination, inspect=inspect, partly=partly)
    case = examination.case
    asking = asking_of(examination, partly=partly)
    found = Found()
    load_loops(len(case.inputs))
    # Of samples that are drawn nobody knows which will be asked.
    with open_sides(examination, None if case.inputs.drawn else case.inputs) as (ours, theirs):
        for samples in group_samples(case.inputs.indices):
            done = len(found.compared) + len(found.failed)
            found.add(
                compare_samples(
                    ours,
                    theirs,
                    case.inputs.samples(samples),
                    asking,
                    twice=not found.compared,
                    in_a_row=found.in_a_row,
                    tell=partial(_tell_position, examination, done),
                )
            )
            if found.over or is_sure(examination, found):
                break
        examination.progress(COMPARING, len(case.inputs), len(case.inputs))
        found.told = tell_sides(ours, theirs)
        found.seconds[0] += ours.spent

        def ask(closing: Closing, indices: Sequence[int]) -> Closed:
            return answer_closing(closing, ours, theirs, case.inputs.samples(indices), examination.progress)

        return finish_run(examination, found, ask, inspect=inspect)


def error_by_sample(examination: Examination) -> dict[int, float]:
    """The largest distance of an output on each sample; infinite where it is no number, 0 where nothing was compared."""
    sizes = dict.fromkeys(examination.case.inputs.indices, 0.0)
    for found in examination.run.per_sample.values() if examination.run is not None else ():
        for index, error in found:
            sizes[index] = max(sizes.get(index, 0.0), math.inf if math.isnan(error) else error)
    return sizes


def worst_sample(examination: Examination) -> int | None:
    """The sample of the largest output error, None if every sample is as good as the others."""
    sizes = error_by_sample(examination)
    return max(sizes, key=lambda index: sizes[index]) if any(sizes.values()) else None


def _tell_position(examination: Examination, done: int, position: int) -> None:
    examination.progress(COMPARING, done + position, len(examination.case.inputs))
