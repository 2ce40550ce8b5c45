"""An examination's outputs: how they are compared, and what comes of what was found on all samples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.both import open_both
from parityscope.backends.opening import shapes_for
from parityscope.errors import ParityError
from parityscope.examination import OutputRun
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.records import Skip
from parityscope.study._answering import skips_of_failures
from parityscope.study._output_parts import one_rounding_explains
from parityscope.study._run_variation import part_that_changes
from parityscope.study._sample_tasks import FIRST_SAMPLES, OTHER_SHAPE, Asking

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from parityscope.backends import Session
    from parityscope.examination import Examination
    from parityscope.records import ExecutedGraph, Target
    from parityscope.study._sample_tasks import Found

__all__ = ["COMPARING", "asking_of", "finish_run", "is_inspected", "is_varying", "make_run", "open_sides"]

COMPARING = "comparing outputs"  # what the progress says
_SHAPES = "let the candidate run at the batch size of the samples, or give samples of its own"


def asking_of(examination: Examination, *, partly: bool) -> Asking:
    """How the outputs of an examination are compared."""
    return Asking(
        outputs=tuple(value.name for value in examination.case.model.outputs),
        names=examination.names,
        policy=examination.case.policy,
        partly=partly,
        kept=frozenset(examination.case.inputs.indices[:FIRST_SAMPLES]),
    )


def open_sides(examination: Examination) -> AbstractContextManager[tuple[Session, Session]]:
    """Both sides as they are deployed, undisturbed."""
    case, candidate = examination.case, examination.candidate
    shapes = Capture(shapes=shapes_for(case.model, candidate, case.inputs))
    return open_both(case.model, examination.reference, candidate, theirs=shapes)


def make_run(examination: Examination, found: Found) -> OutputRun:
    """What all samples told.

    Raises:
        ParityError: the candidate gave nothing, or no output is there on both sides.
    """
    if not found.compared and found.failed:
        raise found.failed[0].as_error()
    if not found.statistics:
        raise ParityError(
            "no output could be compared: " + "; ".join(f"{name}: {why}" for name, why in found.problems.items()),
            fix=_SHAPES
            if all(OTHER_SHAPE in why for why in found.problems.values())
            else "names are matched exactly: map renamed outputs with --map reference_name=candidate_name",
        )
    told = found.told
    if told is None:
        raise ValueError("the sessions of both sides were not asked")
    unanswered = frozenset(examination.case.inputs.indices) - frozenset(found.compared)
    skipped = [*told.absent]
    skipped += skips_of_failures(found.failed, len(unanswered - {one.index for one in found.failed}))
    skipped += [
        Skip(what=f"output {name}", reason=problem, fix=_fix_for(problem, name), asked=True)
        for name, problem in found.problems.items()
    ]
    return OutputRun(
        statistics=found.statistics,
        per_sample={name: tuple(errors) for name, errors in found.errors.items()},
        spread=found.spread or 0.0,
        changing=0.0,
        skipped=tuple(skipped),
        executed=told.executed,
        reference_seconds=found.seconds[0],
        candidate_seconds=found.seconds[1],
        reference_environment=told.reference_environment,
        candidate_environment=told.candidate_environment,
        outside=found.outside,
        kept=found.kept,
        parts=found.parts,
        decisions=found.decisions,
        unanswered=unanswered,
    )


def finish_run(
    examination: Examination, run: OutputRun, ours: Session, theirs: Session, *, over: bool, inspect: bool
) -> OutputRun:
    """The run, with what takes more runs of open sessions: how a candidate that varies does so, and what it really runs."""
    if over:
        return run
    if is_varying(run):
        changing = part_that_changes(examination.case, ours, theirs, examination.names, examination.progress)
        run = replace(run, changing=changing)
    if not is_inspected(examination, run, inspect=inspect):
        return run
    executed, untold = _executed_graph(theirs, examination.candidate)
    return replace(run, executed=executed, skipped=(*run.skipped, *untold))


def is_varying(run: OutputRun) -> bool:
    """Whether two runs of the candidate differ by more than rounding."""
    return run.spread > FLOAT32_ROUNDING


def is_inspected(examination: Examination, run: OutputRun, *, inspect: bool) -> bool:
    """Whether the candidate is asked what it really runs."""
    return inspect and not (examination.candidate.precision in {"", "f32"} and one_rounding_explains(run))


def _fix_for(problem: str, name: str) -> str:
    """What makes an output comparable that was not."""
    if OTHER_SHAPE in problem:
        return _SHAPES
    if "did not give" in problem:
        return f"let it give {name} back; if it calls it otherwise: --map {name}=ITS_NAME"
    return ""


def _executed_graph(session: Session, target: Target) -> tuple[ExecutedGraph | None, list[Skip]]:
    """What a target really runs, as far as it tells."""
    if session.executed is not None or session.inspect is None:
        return session.executed, []
    try:
        return session.inspect(), []
    except ParityError as refusal:
        what = f"what {target.backend} really runs"
        return None, [Skip(what=what, reason=refusal.problem, fix=refusal.fix)]
