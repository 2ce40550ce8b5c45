"""The outputs of both sides on every sample, shared by workers: the same tasks as in one process, merged in the same order."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from parityscope.backends import Capture
from parityscope.backends.both import open_both
from parityscope.backends.opening import shapes_for
from parityscope.backends.sharing import files_of_model, files_of_targets, locate_target, needs_gpu
from parityscope.case import load_model
from parityscope.comparison import Channels, Exact, Floats, Histogram, Moments, Scores, Sketch, Statistics
from parityscope.comparison.decisions import Decided
from parityscope.comparison.parts import Parts
from parityscope.comparison.tolerance import OutsideTolerance
from parityscope.custom_operators import library_in_use
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.study._output_run import COMPARING, Closed, answer_closing, asking_of, finish_run, open_sides
from parityscope.study._scratch_folder import run_facts
from parityscope.study.answering import Failure
from parityscope.study.sample_tasks import Asking, Found, SidesTold, compare_samples, load_loops, tell_sides
from parityscope.study.sampling import is_sure
from parityscope.workers import Job, Shipped, group_samples
from parityscope.workers.choosing import choose_run
from parityscope.workers.finishing import TASKS, finish_tasks
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from parityscope.backends import Session
    from parityscope.case import Sample
    from parityscope.examination import Examination, OutputRun
    from parityscope.records import Target
    from parityscope.study._output_run import Closing
    from parityscope.workers import Do

__all__ = ["run_in_workers"]

_RECORDS = (
    *(Statistics, Floats, Exact, Moments, Histogram, Sketch, Channels, Scores),
    *(Found, Failure, SidesTold, Parts, Decided, OutsideTolerance, Skip, ExecutedGraph, ExecutedLayer, Closed),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _SidesThere:
    """Both sides, to be opened on another machine: `model` is where the reference's file lies here."""

    model: str
    reference: Target
    candidate: Target
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]

    @contextlib.contextmanager
    def open(self, places: Mapping[str, Path]) -> Iterator[tuple[Session, Session]]:
        """Opens them with the files where they lie there."""
        reference, candidate = (locate_target(one, places) for one in (self.reference, self.candidate))
        model = load_model(places[self.model])
        with (
            library_in_use(reference.option("custom_ops")),
            open_both(model, reference, candidate, theirs=Capture(shapes=self.shapes)) as sides,
        ):
            yield sides


def _make_job(examination: Examination, groups: Sequence[tuple[int, ...]], asked: Callable[..., Any]) -> Job:
    """A task for each group of samples, by what is asked of both sides about them."""
    case, targets = examination.case, (examination.reference, examination.candidate)
    there = _SidesThere(
        model=str(case.model.path),
        reference=examination.reference,
        candidate=examination.candidate,
        shapes=shapes_for(case.model, examination.candidate, case.inputs),
    )

    def read(number: int) -> Iterator[Sample]:
        return map(case.inputs.read, groups[number])

    return Job(
        count=len(groups),
        read=read,
        open=partial(_open_tasks, partial(open_sides, examination), asked),
        shipped=Shipped(
            files=(files_of_model(case.model.path), *files_of_targets(targets)),
            open=partial(_open_there, there, asked),
            gpus=int(any(map(needs_gpu, targets))),
            runtimes=tuple(dict.fromkeys(one.backend for one in targets)),
        ),
    )


def _open_there(
    there: _SidesThere, asked: Callable[..., Any], places: Mapping[str, Path]
) -> AbstractContextManager[Do]:
    return _open_tasks(partial(there.open, places), asked)


@contextlib.contextmanager
def _open_tasks(
    opened: Callable[[], AbstractContextManager[tuple[Session, Session]]], asked: Callable[..., Any]
) -> Iterator[Do]:
    """A worker's sessions, and what does a task with them."""
    load_loops(sys.maxsize)
    with opened() as (ours, theirs):
        yield lambda number, samples: pack_record(asked(ours, theirs, number, samples))


def _digest_of_work(examination: Examination, *, partly: bool) -> str:
    """What tells finished tasks of this work from those of any other."""
    held = {
        "facts": run_facts(examination),
        "policy": asdict(examination.case.policy),
        "names": dict(examination.names),
        "partly": partly,
    }
    return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()[:16]
