"""The outputs of both sides on every sample, shared by workers: the same tasks as in one process, merged in the same order."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from parityscope.backends.opening import shapes_for
from parityscope.backends.shared_targets import SharedTargets, make_job
from parityscope.comparison.decisions import Decided
from parityscope.comparison.parts import LargestParts, Parts
from parityscope.comparison.tolerance import OutsideTolerance
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.study._chunk_notes import STATISTICS
from parityscope.study._output_run import COMPARING, Closed, answer_closing, asking_of, finish_run
from parityscope.study._scratch_folder import run_facts
from parityscope.study.answering import Failure
from parityscope.study.sample_tasks import Asking, Found, SidesTold, compare_samples, load_loops, tell_sides
from parityscope.study.sampling import is_sure
from parityscope.workers import group_samples
from parityscope.workers.choosing import choose_run
from parityscope.workers.finishing import TASKS, finish_tasks
from parityscope.workers.packing import unpack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from parityscope.backends import Session
    from parityscope.case import Sample
    from parityscope.examination import Examination, OutputRun
    from parityscope.study._output_run import Closing
    from parityscope.workers import Job

_RECORDS = (
    *STATISTICS,
    *(
        Found,
        Failure,
        SidesTold,
        LargestParts,
        Parts,
        Decided,
        OutsideTolerance,
        Skip,
        ExecutedGraph,
        ExecutedLayer,
        Closed,
    ),
)


def run_in_workers(examination: Examination, *, inspect: bool = False, partly: bool = False) -> OutputRun:
    """As `run_outputs` does it, by the workers that the request names; what they finish lies in the examination's folder.

    Raises:
        ParityError: as there, or there are no such workers.
    """
    case, progress, workers = examination.case, examination.progress, examination.request.workers
    groups = group_samples(case.inputs.indices)
    job = _make_job(examination, groups, partial(_compare_group, asking_of(examination, partly=partly)))
    folder = examination.folder / f"{TASKS}{_digest_of_work(examination, partly=partly)}"

    def tell(done: int) -> None:
        progress(COMPARING, min(len(case.inputs), done * len(groups[0])), len(case.inputs))

    def ask(closing: Closing, indices: Sequence[int]) -> Closed:
        once = _make_job(examination, [tuple(indices)], partial(_close_group, closing))
        closed: Closed = unpack_record(next(finish_tasks(choose_run(workers, once), 1, None, lambda _: None)), _RECORDS)
        return closed

    load_loops(sys.maxsize)  # before there are workers: they find what is loaded
    found = Found()
    with contextlib.closing(finish_tasks(choose_run(workers, job), job.count, folder, tell)) as tasks:
        for content in tasks:
            found.add(unpack_record(content, _RECORDS))
            if found.over or is_sure(examination, found):
                break
    return finish_run(examination, found, ask, inspect=inspect)


def _compare_group(asking: Asking, ours: Session, theirs: Session, number: int, samples: Iterable[Sample]) -> Found:
    found = compare_samples(ours, theirs, samples, asking, twice=number == 0)
    found.told = tell_sides(ours, theirs) if number == 0 else None
    return found


def _close_group(closing: Closing, ours: Session, theirs: Session, _number: int, samples: Iterable[Sample]) -> Closed:
    return answer_closing(closing, ours, theirs, samples)


def _make_job(examination: Examination, groups: Sequence[tuple[int, ...]], asked: Callable[..., Any]) -> Job:
    """A task for each group of samples, by what is asked of both sides about them."""
    case = examination.case
    shared = SharedTargets(
        targets=(examination.reference, examination.candidate),
        asked=asked,
        shapes=shapes_for(case.model, examination.candidate, case.inputs),
        prepare=partial(load_loops, sys.maxsize),
    )
    return make_job(case.model, shared, groups, case.inputs.samples)


def _digest_of_work(examination: Examination, *, partly: bool) -> str:
    """What tells finished tasks of this work from those of any other."""
    held = {
        "facts": run_facts(examination),
        "policy": asdict(examination.case.policy),
        "names": dict(examination.names),
        "partly": partly,
    }
    return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()[:16]
