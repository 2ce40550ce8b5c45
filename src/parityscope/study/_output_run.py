"""An examination's outputs: how they are compared, and what comes of what was found on all samples."""

from __future__ import annotations

import json
import re
import shlex
from itertools import permutations
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.both import open_both
from parityscope.backends.opening import shapes_for
from parityscope.backends.recording import Progress, ignore_progress
from parityscope.case.deciding import rules_of_outputs
from parityscope.comparison.distance import largest_distance
from parityscope.comparison.rows import make_aligner
from parityscope.errors import ParityError
from parityscope.examination import OutputRun
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.study.answering import skips_of_failures
from parityscope.study.output_parts import one_rounding_explains
from parityscope.study.run_variation import PAIRS, part_that_changes
from parityscope.study.sample_tasks import FIRST_SAMPLES, OTHER_SHAPE, Asking
from parityscope.study.sampling import sampling_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from parityscope.backends import Session
    from parityscope.case import Inputs, Sample
    from parityscope.examination import Examination
    from parityscope.records import ExecutedGraph, Target
    from parityscope.study.sample_tasks import Found

COMPARING = "comparing outputs"  # what the progress says
_SHAPE = re.compile(r"\[[\d, ]*\]")
_BATCH = "let the candidate run at the batch size of the samples, or give samples of its own"
_AXES = 6  # chosen: no image, sound or text has more, and their orders are counted one by one
_SHAPES = (
    "check that it is the same output of the same model: if it is called otherwise there, --map reference=candidate"
)


def asking_of(examination: Examination, *, partly: bool) -> Asking:
    """How the outputs of an examination are compared."""
    return Asking(
        outputs=tuple(value.name for value in examination.case.model.outputs),
        names=dict(examination.names),
        policy=examination.case.policy,
        partly=partly,
        kept=frozenset(examination.case.inputs.indices[:FIRST_SAMPLES]),
        rules=rules_of_outputs(examination.case.model.outputs, examination.case.model.decides, examination.case.policy),
        judged=examination.request.until_sure > 0,
    )


def open_sides(
    examination: Examination, samples: Inputs | None = None
) -> AbstractContextManager[tuple[Session, Session]]:
    """Both sides as they are deployed, undisturbed; `samples` are what both will be asked, where that is known."""
    case, candidate = examination.case, examination.candidate
    shapes = Capture(shapes=shapes_for(case.model, candidate, case.inputs))
    return open_both(case.model, examination.reference, candidate, samples, theirs=shapes)


def make_run(examination: Examination, found: Found) -> OutputRun:
    """What all samples told.

    Raises:
        ParityError: the candidate gave nothing, or no output is there on both sides.
    """
    if not found.compared and found.failed:
        raise found.failed[0].as_error()
    if not found.compared:  # none of the samples that were drawn can be judged: this says why
        examination.case.inputs.settle(sorted(examination.case.inputs.indices))
    if not found.statistics:
        raise ParityError(
            "no output could be compared: " + "; ".join(f"{name}: {why}" for name, why in found.problems.items()),
            fix=_fix_for(next(iter(found.problems)), found.problems)
            if all(OTHER_SHAPE in why for why in found.problems.values())
            else "names are matched exactly: map renamed outputs with --map reference_name=candidate_name",
        )
    told = found.told
    if told is None:
        raise ValueError("the sessions of both sides were not asked")
    sampling = sampling_of(examination, found)
    asked = examination.case.inputs.indices if sampling is None else sampling.taken
    unanswered = frozenset(asked) - frozenset(found.compared)
    skipped = [*told.absent]
    skipped += skips_of_failures(found.failed, len(unanswered - {one.index for one in found.failed}))
    skipped += [
        Skip(what=f"output {name}", reason=problem, fix=_fix_for(name, found.problems), asked=True)
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
        largest=found.largest,
        decisions=found.decisions,
        changed=found.changed,
        unanswered=unanswered,
        sampling=sampling,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What is asked of open sessions when all samples are known: how far two runs are apart, how runs vary, what really runs."""

    asking: Asking
    candidate: Target
    again: bool = False
    varies: bool = False
    inspects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What they answered, as in `OutputRun`; `skipped` is what they did not tell."""

    spread: float = 0.0
    changing: float = 0.0
    executed: ExecutedGraph | None = None
    skipped: tuple[Skip, ...] = ()


def finish_run(
    examination: Examination, found: Found, ask: Callable[[Closing, Sequence[int]], Closed], *, inspect: bool
) -> OutputRun:
    """What all samples told, and where that makes it necessary what open sessions tell, which `ask` asks with some samples.

    Raises:
        ParityError: as `make_run`, or a side cannot run.
    """
    run = make_run(examination, found)
    if found.over:
        return run
    plain = Closing(asking=asking_of(examination, partly=False), candidate=examination.candidate)
    if found.spread is None:
        run = replace(run, spread=ask(replace(plain, again=True), found.compared[:1]).spread)
    # Two runs of the candidate differ by more than rounding.
    varies = run.spread > FLOAT32_ROUNDING
    inspects = inspect and not (examination.candidate.precision in {"", "f32"} and one_rounding_explains(run))
    if varies or inspects:
        closing = replace(plain, varies=varies, inspects=inspects)
        closed = ask(closing, examination.case.inputs.indices[:PAIRS] if varies else ())
        run = replace(run, changing=closed.changing, skipped=(*run.skipped, *closed.skipped))
        run = replace(run, executed=closed.executed) if inspects else run
    return run


def answer_closing(
    closing: Closing,
    ours: Session,
    theirs: Session,
    samples: Iterable[Sample],
    progress: Progress = ignore_progress,
) -> Closed:
    """Asks open sessions.

    Raises:
        ParityError: a side cannot run.
    """
    closed = Closed()
    held = list(samples)
    if closing.again:
        align = make_aligner(closing.asking.policy, closing.asking.names)
        expected = ours.run(held[0])
        (_, first), (_, second) = (align(expected, theirs.run(held[0])) for _ in range(2))
        closed = replace(closed, spread=largest_distance(first, second))
    if closing.varies:
        closed = replace(closed, changing=part_that_changes(held, closing.asking, ours, theirs, progress))
    if closing.inspects:
        executed, untold = _executed_graph(theirs, closing.candidate)
        closed = replace(closed, executed=executed, skipped=tuple(untold))
    return closed


def _fix_for(name: str, problems: Mapping[str, str]) -> str:
    """What makes an output comparable that was not, of all with their `problems`."""
    problem = problems[name]
    if OTHER_SHAPE in problem:
        shapes = {one: _shapes_in(told) for one, told in problems.items() if OTHER_SHAPE in told}
        ours, theirs = shapes[name]
        fitting = {one: [other for other, its in shapes.items() if its[1] == own[0]] for one, own in shapes.items()}
        if len(fitting) > 1 and all(len(others) == 1 for others in fitting.values()):
            pairs = " ".join(f"--map {shlex.quote(f'{one}={others[0]}')}" for one, others in fitting.items())
            return f"the names are exchanged, as the shapes show: {pairs}"
        # Sizes of the first axis are the batch's, where all else agrees.
        if sorted(ours) == sorted(theirs) and len(ours) <= _AXES:
            order = next(one for one in permutations(range(len(ours))) if [theirs[axis] for axis in one] == ours)
            return (
                f"its axes may come in another order (NHWC?): hand it on transposed, with numpy {name}.transpose{order}"
            )
        return _BATCH if ours[1:] == theirs[1:] and len(ours) == len(theirs) else _SHAPES
    if "did not give" in problem:
        return f"let it give {name} back; if it calls it otherwise: --map {name}=ITS_NAME"
    return ""


def _shapes_in(problem: str) -> tuple[list[int], list[int]]:
    """The reference's shape and the candidate's, of a problem that says both."""
    ours, theirs = (json.loads(shape) for shape in _SHAPE.findall(problem)[:2])
    return ours, theirs


def _executed_graph(session: Session, target: Target) -> tuple[ExecutedGraph | None, list[Skip]]:
    """What a target really runs, as far as it tells."""
    if session.executed is not None or session.inspect is None:
        return session.executed, []
    try:
        return session.inspect(), []
    except ParityError as refusal:
        what = f"what {target.backend} really runs"
        return None, [Skip(what=what, reason=refusal.problem, fix=refusal.fix)]
