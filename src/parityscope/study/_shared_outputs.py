"""The outputs of both sides on every sample, shared by workers: the same tasks as in one process, merged in the same order."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from parityscope.comparison import Channels, Exact, Floats, Histogram, Moments, Scores, Sketch, Statistics
from parityscope.comparison.decisions import Decided
from parityscope.comparison.distance import largest_distance
from parityscope.comparison.parts import Parts
from parityscope.comparison.rows import make_aligner
from parityscope.comparison.tolerance import OutsideTolerance
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.study._answering import Failure
from parityscope.study._output_run import (
    COMPARING,
    asking_of,
    finish_run,
    is_inspected,
    is_varying,
    make_run,
    open_sides,
)
from parityscope.study._sample_tasks import Found, SidesTold, compare_samples, tell_sides
from parityscope.study._scratch_folder import run_facts
from parityscope.workers import Job, group_samples
from parityscope.workers.choosing import choose_run
from parityscope.workers.finishing import TASKS, finish_tasks
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.backends import Session
    from parityscope.examination import Examination, OutputRun

__all__ = ["run_in_workers"]

_RECORDS = (
    *(Statistics, Floats, Exact, Moments, Histogram, Sketch, Channels, Scores),
    *(Found, Failure, SidesTold, Parts, Decided, OutsideTolerance, Skip, ExecutedGraph, ExecutedLayer),
)


def run_in_workers(examination: Examination, *, inspect: bool = False, partly: bool = False) -> OutputRun:
    """As `run_outputs` does it, by the workers that the request names; what they finish lies in the examination's folder.

    Raises:
        ParityError: as there, or there are no such workers.
    """
    case, progress = examination.case, examination.progress
    groups = group_samples(case.inputs.indices)
    job = Job(count=len(groups), open=partial(_open_tasks, examination, groups, partly=partly))
    folder = examination.folder / f"{TASKS}{_digest_of_work(examination, partly=partly)}"

    def tell(done: int) -> None:
        progress(COMPARING, min(len(case.inputs), done * len(groups[0])), len(case.inputs))

    found = Found()
    with contextlib.closing(
        finish_tasks(choose_run(examination.request.workers, job), job.count, folder, tell)
    ) as tasks:
        for content in tasks:
            found.add(unpack_record(content, _RECORDS))
            if found.over:
                break
    run = make_run(examination, found)
    if found.over:
        return run
    if found.spread is None or is_varying(run) or is_inspected(examination, run, inspect=inspect):
        closing = Job(count=1, open=partial(_open_closing, examination, found, inspect=inspect))
        content = next(finish_tasks(choose_run("1", closing), 1, None, lambda _: None))
        spread, changing, executed, skipped = unpack_record(content, _RECORDS)
        run = replace(run, spread=spread, changing=changing, executed=executed, skipped=skipped)
    return run


@contextlib.contextmanager
def _open_tasks(
    examination: Examination, groups: list[tuple[int, ...]], *, partly: bool
) -> Iterator[Callable[[int], bytes]]:
    """A worker's sessions, and what does a task with them."""
    asking = asking_of(examination, partly=partly)
    with open_sides(examination) as (ours, theirs):

        def compare_group(number: int) -> bytes:
            samples = map(examination.case.inputs.read, groups[number])
            found = compare_samples(ours, theirs, samples, asking, twice=number == 0)
            found.told = tell_sides(ours, theirs) if number == 0 else None
            return pack_record(found)

        yield compare_group


@contextlib.contextmanager
def _open_closing(examination: Examination, found: Found, *, inspect: bool) -> Iterator[Callable[[int], bytes]]:
    """What asks open sessions for what all samples together made necessary."""
    case = examination.case

    def close_run(ours: Session, theirs: Session) -> bytes:
        if found.spread is None:
            sample = case.inputs.read(found.compared[0])
            align = make_aligner(case.policy.matched, examination.names)
            expected = ours.run(sample)
            found.spread = largest_distance(*(align(expected, theirs.run(sample)) for _ in range(2)))
        run = finish_run(examination, make_run(examination, found), ours, theirs, over=False, inspect=inspect)
        return pack_record((run.spread, run.changing, run.executed, run.skipped))

    with open_sides(examination) as (ours, theirs):
        yield lambda _number: close_run(ours, theirs)


def _digest_of_work(examination: Examination, *, partly: bool) -> str:
    """What tells finished tasks of this work from those of any other."""
    held = {
        "facts": run_facts(examination),
        "policy": asdict(examination.case.policy),
        "names": dict(examination.names),
        "partly": partly,
    }
    return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()[:16]
