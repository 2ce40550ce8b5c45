"""Reference and candidate side by side on every sample, outputs only, undisturbed: what the verdict rests on."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.backends import Capture
from parityscope.backends.both import open_both
from parityscope.backends.opening import shapes_for
from parityscope.case.policy import budgets_for
from parityscope.comparison import channel_axis, likely_scores, measure_pair, merge_statistics
from parityscope.comparison.decisions import measure_decisions, merge_decisions
from parityscope.comparison.distance import error_distance, largest_distance
from parityscope.comparison.parts import measure_parts
from parityscope.comparison.rows import make_aligner
from parityscope.comparison.tolerance import count_outside, merge_outside
from parityscope.errors import ParityError
from parityscope.examination import OutputRun
from parityscope.expectation.grades import FLOAT32_ROUNDING
from parityscope.records import Skip
from parityscope.study._answering import Answering, answer_sample
from parityscope.study._output_parts import one_rounding_explains
from parityscope.study._run_variation import part_that_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from parityscope.backends import Session
    from parityscope.comparison import Statistics
    from parityscope.comparison.decisions import Decided
    from parityscope.comparison.parts import Parts
    from parityscope.comparison.tolerance import OutsideTolerance
    from parityscope.examination import Examination
    from parityscope.records import ExecutedGraph, Policy, Target

__all__ = ["FIRST_SAMPLES", "WORST_SAMPLES", "error_by_sample", "run_outputs", "worst_sample"]

# Of each output, the samples that it is looked at by part; chosen: expectations vary less between samples than the margins.
FIRST_SAMPLES, WORST_SAMPLES = 2, 2
_KEPT = (
    64 << 20
)  # bytes of the first samples' outputs that are kept; chosen: what has more is run again if it is asked for
_OTHER_SHAPE = " shape is "  # in what is said of an output whose shapes differ
_SHAPES = "let the candidate run at the batch size of the samples, or give samples of its own"


def run_outputs(examination: Examination, *, inspect: bool = False, partly: bool = False) -> OutputRun:
    """Runs both targets on every sample and compares the outputs that both have.

    The candidate runs the first sample twice: its own spread is known before anything is blamed. `inspect` asks it what it
    really runs also where that takes another session, unless it is to run in FP32 and gives what that does. `partly` goes on
    where the candidate gives nothing for a sample.

    Raises:
        ParityError: a side cannot run (with `partly`: on any sample), or no output is there on both sides.
    """
    case, candidate = examination.case, examination.candidate
    pairing, progress = examination.names, examination.progress
    totals: dict[str, Statistics] = {}
    errors: dict[str, list[tuple[int, float]]] = {}
    parts: dict[str, dict[int, Parts]] = {}
    outside: dict[str, OutsideTolerance] = {}
    decisions: dict[str, Decided | None] = {}
    problems: dict[str, str] = {}
    spread = 0.0
    kept: dict[int, Mapping[str, np.ndarray]] = {}
    seconds = [0.0, 0.0]
    align = make_aligner(case.policy.matched, pairing)
    shapes = Capture(shapes=shapes_for(case.model, candidate, case.inputs))
    with open_both(case.model, examination.reference, candidate, theirs=shapes) as (ours, theirs):
        skipped = [*ours.absent, *theirs.absent]
        answers = Answering(session=theirs, partly=partly)
        compared: list[int] = []
        for position, sample in enumerate(case.inputs):
            progress("comparing outputs", position, len(case.inputs))
            start = time.perf_counter()
            expected = answer_sample(ours, sample)
            middle = time.perf_counter()
            found = answers.of(sample)
            seconds[0] += middle - start
            seconds[1] += time.perf_counter() - middle
            again = found if compared or found is None else answers.of(sample)
            if answers.over:
                break
            if found is None or again is None:
                continue
            if not compared:
                spread = largest_distance(align(expected, found), align(expected, again))
            compared.append(sample.index)
            if position < FIRST_SAMPLES and sum(array.nbytes for array in expected.values()) <= _KEPT // FIRST_SAMPLES:
                kept[sample.index] = expected
            found = align(expected, found)
            for value in case.model.outputs:
                problem = _compare_output(value.name, pairing, expected, found, totals, errors, sample.index)
                if problem:
                    problems.setdefault(value.name, f"{problem} (sample {sample.name})")
                else:
                    pair = expected[value.name], found[pairing.get(value.name, value.name)]
                    _count_outside(value.name, case.policy, pair, outside)
                    _add_decisions(value.name, pair, decisions)
                    _keep_parts(parts.setdefault(value.name, {}), sample.index, errors[value.name], pair)
        progress("comparing outputs", len(case.inputs), len(case.inputs))
        if not compared:
            answers.raise_first()
        unanswered = frozenset(case.inputs.indices) - frozenset(compared)
        skipped += answers.skips(sorted(unanswered - {sample.index for sample, _ in answers.failed}))
        skipped += [
            Skip(what=f"output {name}", reason=problem, fix=_fix_for(problem, name), asked=True)
            for name, problem in problems.items()
        ]
        if not totals:
            raise ParityError(
                "no output could be compared: " + "; ".join(f"{name}: {why}" for name, why in problems.items()),
                fix=_SHAPES
                if all(_OTHER_SHAPE in why for why in problems.values())
                else "names are matched exactly: map renamed outputs with --map reference_name=candidate_name",
            )
        run = OutputRun(
            statistics=totals,
            per_sample={name: tuple(found) for name, found in errors.items()},
            spread=spread,
            changing=part_that_changes(case, ours, theirs, pairing, progress)
            if spread > FLOAT32_ROUNDING and not answers.over
            else 0.0,
            skipped=tuple(skipped),
            executed=theirs.executed,
            reference_seconds=seconds[0],
            candidate_seconds=seconds[1],
            reference_environment=ours.environment,
            candidate_environment=theirs.environment,
            outside=outside,
            kept=kept,
            parts=parts,
            decisions=decisions,
            unanswered=unanswered,
        )
        if not inspect or answers.over or (candidate.precision in {"", "f32"} and one_rounding_explains(run)):
            return run
        executed, untold = _executed_graph(theirs, candidate)
        return replace(run, executed=executed, skipped=(*skipped, *untold))


def _fix_for(problem: str, name: str) -> str:
    """What makes an output comparable that was not."""
    if _OTHER_SHAPE in problem:
        return _SHAPES
    if "did not give" in problem:
        return f"let it give {name} back; if it calls it otherwise: --map {name}=ITS_NAME"
    return ""


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


def _executed_graph(session: Session, target: Target) -> tuple[ExecutedGraph | None, list[Skip]]:
    """What a target really runs, as far as it tells."""
    if session.executed is not None or session.inspect is None:
        return session.executed, []
    try:
        return session.inspect(), []
    except ParityError as refusal:
        what = f"what {target.backend} really runs"
        return None, [Skip(what=what, reason=refusal.problem, fix=refusal.fix)]


def _compare_output(
    name: str,
    pairing: Mapping[str, str],
    expected: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    totals: dict[str, Statistics],
    errors: dict[str, list[tuple[int, float]]],
    index: int,
) -> str:
    """Compares one output of one sample; gives why it could not."""
    other = pairing.get(name, name)
    if name not in expected:
        return "the reference did not give it back"
    if other not in found:
        return f"the candidate did not give {other!r} back (it gave: {', '.join(found) or 'nothing'})"
    reference, candidate = expected[name], found[other]
    if reference.shape != candidate.shape:
        return f"its{_OTHER_SHAPE}{list(reference.shape)} in the reference and {list(candidate.shape)} in the candidate"
    try:
        part = measure_pair(
            reference,
            candidate,
            channel_axis=channel_axis(reference.ndim),
            threads=2,
            as_scores=likely_scores(reference.dtype, reference.shape),
        )
    except ValueError as error:
        return str(error)
    totals[name] = merge_statistics(totals[name], part) if name in totals else part
    errors.setdefault(name, []).append((index, error_distance(part)))
    return ""


def _count_outside(
    name: str, policy: Policy, pair: tuple[np.ndarray, np.ndarray], outside: dict[str, OutsideTolerance]
) -> None:
    """Adds one sample of one output (reference, candidate), where the policy has a tolerance for it."""
    for budget in budgets_for(policy, name):
        if budget.tolerance is not None:
            part = count_outside(*pair, budget.tolerance)
            outside[name] = merge_outside(outside[name], part) if name in outside else part


def _add_decisions(name: str, pair: tuple[np.ndarray, np.ndarray], decisions: dict[str, Decided | None]) -> None:
    """Adds one sample of one output (reference, candidate); of a kind that was not sure once nothing is kept."""
    if name not in decisions:
        decisions[name] = measure_decisions(*pair, name)
    elif (held := decisions[name]) is not None:
        decisions[name] = merge_decisions(held, measure_decisions(*pair, name))


def _keep_parts(
    held: dict[int, Parts],
    index: int,
    errors: Sequence[tuple[int, float]],
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    """Adds the parts of one sample of one output (reference, candidate), if it is among the first or the worst so far."""
    sizes = dict(errors)
    first = {place for place, _ in errors[:FIRST_SAMPLES]}
    worst = sorted(sizes, key=lambda one: -sizes[one])[:WORST_SAMPLES]
    if index not in first and index not in worst:
        return
    found = measure_parts(*pair)
    if found is not None:
        held[index] = found
    for other in held.keys() - first - {*worst}:
        del held[other]
