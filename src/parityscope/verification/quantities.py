"""States of before and after -> a `Quantity`: pooled values, interval of the difference, and what it proves.

An outcome is about the whole interval: improved (it lies on the better side), worse, the same (it lies inside the margin
of what does not matter) or not proved. Errors have a margin of `NEGLIGIBLE`; task metrics have none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.verification.exact import mcnemar_p_value, sign_test
from parityscope.verification.intervals import CONFIDENCE, FEWEST, bootstrap_interval, samples_needed
from parityscope.verification.records import Decisions, Quantity, Regression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from parityscope.verification.intervals import Interval, States
    from parityscope.verification.records import Outcome
    from parityscope.verification.task_metrics import Chosen, TaskAnswer

# A share of the error before. Another order of summation alone moves a rounding error by a few percent (measured: see
# docs/numerics.md), so that less is no change of the deployment.
NEGLIGIBLE = 0.05
_SIGNIFICANT = 1.0 - CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricStates:
    """What one number is made of: the states of both sides in the order of the samples, and how to combine them."""

    name: str
    title: str
    kind: Literal["output", "task"]
    better: Literal["lower", "higher"]
    against: Literal["labels", "reference"]
    before: States
    after: States
    combine: Callable[[States], float]
    single: bool
    resamples: int
    combine_draws: Callable[[np.ndarray], np.ndarray] | None = None  # of many draws at once, where that is known


def score_metric(
    chosen: Chosen, before: Iterable[TaskAnswer], after: Iterable[TaskAnswer], *, labelled: bool
) -> MetricStates:
    """A task metric on both sides.

    Raises:
        ParityError: the metric does not apply to these outputs or labels.
    """
    metric = chosen.metric
    try:
        first, second = metric.score(before, chosen.options), metric.score(after, chosen.options)
    except ParityError:
        raise
    except Exception as error:  # a metric is a plug-in, and labels are anybody's
        raise ParityError(
            f"the metric failed: {type(error).__name__}: {error}",
            where=chosen.text,
            fix="check that the labels are what the metric takes (docs/verify.md), or leave the metric out",
        ) from error
    return MetricStates(
        name=chosen.text,
        title=metric.title,
        kind="task",
        better=metric.better,
        against="labels" if labelled and metric.uses_labels else "reference",
        before=first,
        after=second,
        combine=metric.combine,
        single=metric.single or isinstance(first, np.ndarray),
        resamples=metric.resamples,
    )


def make_quantity(kept: MetricStates, seed: int) -> Quantity:
    """The number on both sides with its interval.

    Raises:
        ParityError: the pooled number is NaN.
    """
    before, after = kept.combine(kept.before), kept.combine(kept.after)
    for value, label in ((before, "before"), (after, "after")):
        if math.isnan(value):
            raise ParityError(
                f"{kept.title} is NaN {label}",
                where=kept.name,
                fix="choose a metric that tells these outputs apart, or leave it out",
            )
    found = bootstrap_interval(
        kept.before,
        kept.after,
        kept.combine,
        seed=seed,
        resamples=kept.resamples,
        combine_draws=kept.combine_draws,
    )
    singles = _values_by_sample(kept, kept.before), _values_by_sample(kept, kept.after)
    changes = [direction_of_change(kept.kind, kept.better, *pair) for pair in zip(*singles, strict=True)]
    improved, worsened = changes.count(1), changes.count(-1)
    decisions = _table_of_decisions(kept, singles)
    outcome = _outcome_of(kept, found, before, decisions)
    difference = 0.0 if before == after else after - before
    return Quantity(
        name=kept.name,
        kind=kept.kind,
        title=kept.title,
        better=kept.better,
        against=kept.against,
        before=before,
        after=after,
        low=found.low,
        high=found.high,
        confidence=CONFIDENCE,
        method=found.method,
        resamples=found.resamples,
        improved=improved,
        equal=changes.count(0),
        worsened=worsened,
        p_value=decisions.p_value if decisions else sign_test(improved, worsened),
        outcome=outcome,
        needed=_samples_still_needed(kept, found, difference, outcome),
        per_sample_before=singles[0],
        per_sample_after=singles[1],
        decisions=decisions,
    )


def decisions_of(before: Sequence[bool], after: Sequence[bool]) -> Decisions:
    """Which of both sides was right on how many samples, with McNemar's exact p-value."""
    pairs = list(zip(before, after, strict=True))
    only_before, only_after = pairs.count((True, False)), pairs.count((False, True))
    return Decisions(
        both=pairs.count((True, True)),
        only_before=only_before,
        only_after=only_after,
        neither=pairs.count((False, False)),
        p_value=mcnemar_p_value(only_before, only_after),
    )


def improvement_of(better: str, before: float, after: float) -> float:
    """How much better `after` is: positive when it is; NaN where one cannot be told."""
    if before == after:
        return 0.0
    return before - after if better == "lower" else after - before


def direction_of_change(kind: str, better: str, before: float, after: float) -> int:
    """1 for a sample that got better, -1 for worse, 0 for a change that does not matter or that cannot be told."""
    gain, margin = improvement_of(better, before, after), _negligible_margin(kind, before)
    return (gain > margin) - (gain < -margin)


def list_regressions(quantities: Sequence[Quantity], names: Mapping[int, str]) -> tuple[Regression, ...]:
    """The samples that got worse, by quantity in their order, worst first; errors by more than what does not matter."""
    found = []
    for one in quantities:
        places = zip(names.items(), one.per_sample_before, one.per_sample_after, strict=True)
        worse = [
            (improvement_of(one.better, before, after), index, name, before, after)
            for (index, name), before, after in places
            if direction_of_change(one.kind, one.better, before, after) < 0
        ]
        found += [
            Regression(index=index, sample=name, quantity=one.name, before=before, after=after)
            for _, index, name, before, after in sorted(worse)
        ]
    return tuple(found)


def _values_by_sample(kept: MetricStates, states: States) -> tuple[float, ...]:
    if not kept.single:
        return (math.nan,) * len(states)
    return tuple(kept.combine(states[at : at + 1]) for at in range(len(states)))


def _table_of_decisions(kept: MetricStates, singles: tuple[tuple[float, ...], tuple[float, ...]]) -> Decisions | None:
    """McNemar's table where every sample of a task metric is plainly right or wrong."""
    if kept.kind != "task" or not {*singles[0], *singles[1]} <= {0.0, 1.0}:
        return None
    right = 1.0 if kept.better == "higher" else 0.0
    return decisions_of(*([value == right for value in side] for side in singles))


def _outcome_of(kept: MetricStates, found: Interval, before: float, decisions: Decisions | None) -> Outcome:
    low, high = (-found.high, -found.low) if kept.better == "lower" else (found.low, found.high)
    margin = _negligible_margin(kept.kind, before)
    if low >= -margin and high <= margin:
        return "same"
    proved = len(kept.before) >= FEWEST and (decisions is None or decisions.p_value <= _SIGNIFICANT)
    if proved and low > margin:
        return "improved"
    if proved and high < -margin:
        return "worse"
    return "not proved"


def _negligible_margin(kind: str, before: float) -> float:
    return NEGLIGIBLE * before if kind == "output" and math.isfinite(before) else 0.0


def _samples_still_needed(kept: MetricStates, found: Interval, difference: float, outcome: Outcome) -> int | None:
    if outcome != "not proved":
        return None
    count = len(kept.before)
    needed = samples_needed(difference, found.error, count)
    return FEWEST if needed is None and count < FEWEST and difference else needed
