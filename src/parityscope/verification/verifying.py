"""Runs reference, before and after on every sample and says whether the repair holds.

Samples with the same inputs: judged once, and told where their labels contradict each other.

Intervals and budgets take samples for drawn one by one; a copy adds nothing. Where labels of the same inputs differ, at most
one of them can be right: such samples are all judged, as they were labelled, and named.

Outputs of `after` against the budgets of the policy: pooled, and as a distribution-free statement about samples.

A budget is kept when the pooled number keeps it and, by Clopper and Pearson's bound, at least `COVERAGE` of samples like
these keep it, with `CONFIDENCE`: 59 samples without a miss (Wilks), 93 with one. It is missed when the pooled number
misses it, or so many samples do that this share is ruled out. In between it is not proved, and the number of samples that
would do is said.
What keeps a limit is said in `parityscope.case.limits`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.deciding import stated_rule
from parityscope.case.equal_samples import repeats_of
from parityscope.case.limits import keeps_limit
from parityscope.case.policy import budgets_for
from parityscope.comparison.decisions import measure_decisions
from parityscope.comparison.metric import better_directions
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip
from parityscope.verification.exact import compliance_bounds, samples_for_coverage
from parityscope.verification.judging import judge_verification
from parityscope.verification.latency import measure_latency, why_not_timed
from parityscope.verification.lost_parts import lost_parts
from parityscope.verification.output_errors import (
    budget_key,
    combiner_of_metric,
    output_errors,
    outputs_side_by_side,
    pooler_of_metric,
)
from parityscope.verification.quantities import (
    MetricStates,
    decisions_of,
    list_regressions,
    make_quantity,
    score_metric,
)
from parityscope.verification.records import BudgetCheck, OutputMeasurements, Verification
from parityscope.verification.running import run_side
from parityscope.verification.task_metrics import TaskAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from parityscope.backends.recording import Progress
    from parityscope.case import Case
    from parityscope.records import Budget, Policy, Target
    from parityscope.verification.intervals import States
    from parityscope.verification.labels import SampleLabels
    from parityscope.verification.lost_parts import LostPart
    from parityscope.verification.output_errors import OutputErrors
    from parityscope.verification.records import Quantity
    from parityscope.verification.running import Recorded
    from parityscope.verification.task_metrics import Chosen

# 95 % of samples with 95 % confidence: the usual tolerance interval, which 59 clean samples show (Wilks 1941).
_COVERAGE = 0.95
_CONFIDENCE = 0.95
_RESAMPLES = 2000  # draws for the errors of outputs: the ends of a 95 % interval then have 50 beyond them


def _check_budgets(policy: Policy, before: OutputErrors, after: OutputErrors) -> tuple[BudgetCheck, ...]:
    """Every budget that applies to this output.

    Raises:
        ParityError: a budget is for this very output, and its metric does not apply to it.
    """
    found = []
    for budget in budgets_for(policy, after.name):
        if budget_key(budget) in after.budgeted:
            found.append(_check_budget(budget, before, after))
        elif budget.output:
            raise ParityError(
                f"{budget.metric} does not apply to output {after.name!r} of {after.dtype}",
                fix=f"use one of: {', '.join(sorted(better_directions(after.statistics)))}",
            )
    return tuple(found)


def _check_budget(budget: Budget, before: OutputErrors, after: OutputErrors) -> BudgetCheck:
    key = budget_key(budget)
    better = better_directions(after.statistics).get(key, "lower")
    *singles, pooled = after.budgeted[key]
    misses = sum(not keeps_limit(value, budget, better) for value in singles)
    lower, upper = compliance_bounds(misses, len(singles), _CONFIDENCE)
    beyond = not keeps_limit(pooled, budget, better) or upper < _COVERAGE
    return BudgetCheck(
        output=after.name,
        budget=budget,
        before=before.budgeted[key][-1],
        after=pooled,
        misses=misses,
        samples=len(singles),
        bound=lower,
        coverage=_COVERAGE,
        confidence=_CONFIDENCE,
        needed=samples_for_coverage(misses, _COVERAGE, _CONFIDENCE),
        floor=after.floor if key == "rel_l2" else 0.0,
        verdict="beyond" if beyond else "within" if lower >= _COVERAGE else "not proved",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The three sides."""

    reference: Target
    before: Target
    after: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationSettings:
    """Task metrics, labels, the seed of every draw, and the seconds that timing may take (0: none).

    `floor` is the root mean square below which an output's size counts no less for a budget on rel_l2 (None: a share of the
    largest sample's). `workers` share the samples, as in `Request`; what is timed is timed in this process.
    """

    metrics: tuple[Chosen, ...] = ()
    labels: SampleLabels | None = None
    seed: int = 0
    timing: float = 20.0
    floor: float | None = None
    workers: str = ""


def verify(
    case: Case,
    targets: Targets,
    settings: VerificationSettings,
    *,
    folder: Path,
    progress: Progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Verification:
    """Before and after on the undisturbed deployment, over all samples of the case; large outputs go to `folder`.

    Raises:
        ParityError: a side cannot run, gives other outputs, or a metric does not apply.
    """
    began = clock()
    case, repeated = _drop_repeated(case, settings.labels)
    reference, before, after = (
        run_side(case, target, folder, label, progress, clock, workers=settings.workers)
        for target, label in ((targets.reference, "reference"), (targets.before, "before"), (targets.after, "after"))
    )
    errors = tuple(
        output_errors(case, reference, side, label, floor=settings.floor)
        for side, label in ((before, "before"), (after, "after"))
    )
    quantities = [
        make_quantity(_states_of_output(*pair), settings.seed)
        for pair in zip(*(side.values() for side in errors), strict=True)
    ]
    task = _task_quantities(settings, reference, before, after, progress)
    task += [
        make_quantity(_states_of_decisions(case, name, words, reference, before, after), settings.seed)
        for name, words in case.policy.decides
        if words != "none"
    ]
    budgets = [found for name in errors[1] for found in _check_budgets(case.policy, errors[0][name], errors[1][name])]
    outputs = tuple(_measure_both(errors[0][name], errors[1][name]) for name in errors[0])
    judgement = judge_verification(
        [*task, *quantities], budgets, outputs, _lost_parts_of(case, reference, before, after)
    )
    skipped = [*case.inputs.not_judged, *repeated]
    latency = None
    untimed = _why_untimed(targets, settings)
    if untimed:
        skipped.append(untimed)
    else:
        progress("timing", 0, 1)
        latency = measure_latency(
            case, targets.before, targets.after, budget=settings.timing, clock=clock, seed=settings.seed
        )
        progress("timing", 1, 1)
    return Verification(
        verdict=judgement.verdict,
        because=judgement.because,
        refuted=judgement.verdict in {"beyond", "worse"},
        samples=tuple(reference.names.values()),
        reference=reference.side,
        before=before.side,
        after=after.side,
        quantities=(*task, *quantities),
        budgets=tuple(budgets),
        outputs=outputs,
        latency=latency,
        regressions=list_regressions([*task, *quantities], reference.names),
        skipped=tuple(skipped),
        seed=settings.seed,
        needed=judgement.needed,
        seconds=clock() - began,
    )


def _lost_parts_of(case: Case, reference: Recorded, before: Recorded, after: Recorded) -> list[LostPart]:
    """Of each output the worst part that the repair lost, if it lost one."""

    def samples(name: str) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
        for index in case.inputs.indices:
            first, second = (outputs_side_by_side(case, name, index, reference, side)[1] for side in (before, after))
            yield reference.names[index], reference.output(index, name), first, second

    found = (lost_parts(value.name, samples(value.name)) for value in case.model.outputs)
    return [one for one in found if one is not None]


def _states_of_output(before: OutputErrors, after: OutputErrors) -> MetricStates:
    titles = {"rel_l2": "relative L2 error", "mismatch_share": "share of unequal elements"}
    return MetricStates(
        name=before.name,
        title=titles[before.metric],
        kind="output",
        better="lower",
        against="reference",
        before=before.sums,
        after=after.sums,
        combine=combiner_of_metric(before.metric),
        combine_draws=pooler_of_metric(before.metric),
        single=True,
        resamples=_RESAMPLES,
    )


def _states_of_decisions(
    case: Case, name: str, words: str, reference: Recorded, before: Recorded, after: Recorded
) -> MetricStates:
    """How many decisions of an output are others than the reference's, a sample: float64, (n, 2), and how many there are."""
    rule = stated_rule(words)

    def count(side: Recorded) -> np.ndarray:
        rows = []
        for index in case.inputs.indices:
            pair = outputs_side_by_side(case, name, index, reference, side)
            found = measure_decisions(*pair, name, rule) if pair[0].shape == pair[1].shape else None
            rows.append((0.0, 0.0) if found is None else (found.others, max(found.count, found.others)))
        return np.array(rows, np.float64).reshape(-1, 2)

    return MetricStates(
        name=f"decisions of {name}",
        title=f"changed decisions of {name} ({words})",
        kind="task",
        better="lower",
        against="reference",
        before=count(before),
        after=count(after),
        combine=_share_of_rows,
        single=True,
        resamples=_RESAMPLES,
    )


def _share_of_rows(states: States) -> float:
    changed, count = np.asarray(states, np.float64).sum(axis=0)
    return float(changed / count) if count else 0.0


def _task_quantities(
    settings: VerificationSettings, reference: Recorded, before: Recorded, after: Recorded, progress: Progress
) -> list[Quantity]:
    found = []
    for step, chosen in enumerate(settings.metrics):
        progress(f"metric {chosen.text}", step, len(settings.metrics))
        sides = (_answers_of_side(reference, side, settings.labels) for side in (before, after))
        found.append(make_quantity(score_metric(chosen, *sides, labelled=settings.labels is not None), settings.seed))
    return found


def _answers_of_side(reference: Recorded, side: Recorded, labels: SampleLabels | None) -> Iterator[TaskAnswer]:
    for index, name in reference.names.items():
        held = None if labels is None else labels.read(index, name)
        yield TaskAnswer(name=name, outputs=side.get(index), reference=reference.get(index), labels=held)


def _measure_both(before: OutputErrors, after: OutputErrors) -> OutputMeasurements:
    from parityscope.comparison import measure_all

    values: list[dict[str, float]] = [
        {one.metric: one.value for one in measure_all(side.statistics).values()} for side in (before, after)
    ]
    counted: list[int] = [_count_nonfinite(side) for side in (before, after)]
    return OutputMeasurements(
        output=before.name,
        dtype=before.dtype,
        before=values[0],
        after=values[1],
        nonfinite_before=counted[0],
        nonfinite_after=counted[1],
        decisions=decisions_of(before.agrees, after.agrees) if before.agrees else None,
    )


def _count_nonfinite(side: OutputErrors) -> int:
    return 0 if side.statistics.floats is None else side.statistics.floats.disagreeing


def _why_untimed(targets: Targets, settings: VerificationSettings) -> Skip | None:
    if settings.timing <= 0:
        return Skip(what="latency", reason="timing was switched off", fix="leave out --no-timing")
    return why_not_timed(targets.before, targets.after)


def _drop_repeated(case: Case, labels: SampleLabels | None) -> tuple[Case, tuple[Skip, ...]]:
    """The case without samples that repeat another one's inputs and labels, and what there is to say.

    Raises:
        ParityError: a sample or its labels cannot be read.
    """
    repeats = repeats_of(case.inputs)
    torn = [
        (index, first)
        for index, first in repeats.items()
        if labels is not None and _labels_differ(case, labels, index, first)
    ]
    kept = {index for index, _ in torn}
    copies = {index: first for index, first in repeats.items() if index not in kept}
    told = []
    if torn:
        index, first = torn[0]
        told.append(
            Skip(
                what=f"whether {_count_samples(len(torn))} can be right",
                reason=f"their inputs are those of another one, and their labels are not: {_name_both(case, first, index)}",
                fix="correct the labels: no model can give two answers to one question",
            )
        )
    if copies:
        index, first = next(iter(copies.items()))
        told.append(
            Skip(
                what=_count_samples(len(copies)),
                reason=f"the same inputs as another one, which is judged: {_name_both(case, first, index)}",
            )
        )
    left = tuple(index for index in case.inputs.indices if index not in copies)
    return (replace(case, inputs=replace(case.inputs, indices=left)) if copies else case), tuple(told)


def _labels_differ(case: Case, labels: SampleLabels, index: int, first: int) -> bool:
    one, other = (_labels_of_sample(case, labels, place) for place in (index, first))
    return one.keys() != other.keys() or any(not np.array_equal(one[name], other[name]) for name in one)


def _labels_of_sample(case: Case, labels: SampleLabels, index: int) -> Mapping[str, np.ndarray]:
    return labels.read(index, case.inputs.sample(index).name)


def _name_both(case: Case, first: int, index: int) -> str:
    return f"{case.inputs.sample(first).name} and {case.inputs.sample(index).name}, say"


def _count_samples(number: int) -> str:
    return f"{number} sample{'' if number == 1 else 's'}"
