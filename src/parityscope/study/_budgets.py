"""Outputs held against the budgets of a policy; what keeps a limit is said in `parityscope.case.limits`."""

from __future__ import annotations

import functools
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np

from parityscope.case.limits import keeps_limit, mistaken_limit
from parityscope.case.policy import budgets_for
from parityscope.comparison import measure_all, measure_pair
from parityscope.comparison.metric import better_directions
from parityscope.comparison.tolerance import count_outside
from parityscope.errors import ParityError
from parityscope.records import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison import Statistics
    from parityscope.records import Pair, Policy, Verdict


@functools.cache
def known_metrics() -> Mapping[str, Literal["lower", "higher"]]:
    """Every number that a metric gives, and on which side its better values lie, found by measuring small pairs."""
    both = (better_directions(statistics) for statistics in _small_pairs())
    return MappingProxyType({name: way for one in both for name, way in one.items()})


def stated_budget(head: str, limit: float, where: str) -> Budget:
    """The budget of `METRIC` or `OUTPUT:METRIC`; `where` says in what option it stands.

    Raises:
        ParityError: there is no such metric, or its values cannot be on the right side of the limit.
    """
    output, colon, metric = head.rpartition(":")
    if not metric or (colon and not output) or math.isnan(limit):
        raise ParityError(f"{where} '{head}={limit:g}' is not METRIC=VALUE", fix=f"write {where} rel_l2=1e-3")
    if metric not in known_metrics():
        fix = f"use one of: {', '.join(sorted(known_metrics()))}"
        raise ParityError(f"there is no metric {metric!r}", fix=fix)
    if wrong := mistaken_limit(metric, limit, known_metrics()[metric]):
        fix = f"write {where} {head}={0 if limit < 0 else 0.5}"
        raise ParityError(f"{where} '{head}={limit:g}' {wrong}", fix=fix)
    return Budget(output=output, metric=metric, limit=limit, reason=f"given with {where}")


def judge_by_budgets(pair: Pair, policy: Policy) -> Verdict | None:
    """The verdict by the budgets that apply to this output; None when none does, and its grade decides.

    A budget for every output applies where its metric does. One for this very output must be judged: if its metric does
    not apply, the verdict is "incomplete".
    """
    budgets = budgets_for(policy, pair.site.tensor)
    verdicts = {
        "within" if _meets_budget(pair, one) else "beyond" for one in budgets if one.metric in pair.measurements
    }
    if "beyond" in verdicts:
        return "beyond"
    if any(one.output and one.metric not in pair.measurements for one in budgets):
        return "incomplete"
    return "within" if verdicts else None


def misses_budget(name: str, statistics: Statistics, pair: tuple[np.ndarray, np.ndarray], policy: Policy) -> bool:
    """Whether one sample of an output, `pair` (reference, candidate), by itself misses a budget that applies to it."""
    found = measure_all(statistics)
    for budget in budgets_for(policy, name):
        held = found.get(budget.metric)
        if budget.tolerance is not None:
            if count_outside(*pair, budget.tolerance).count:
                return True
        elif held is not None and not keeps_limit(held.value, budget, known_metrics().get(budget.metric, "lower")):
            return True
    return False


def said_of_budgets(pair: Pair, policy: Policy) -> str:
    """What was measured against each budget, with its reason; empty when none applies."""
    budgets = budgets_for(policy, pair.site.tensor)
    return "; ".join(_describe_budget(pair, one) for one in budgets if one.output or one.metric in pair.measurements)


def _describe_budget(pair: Pair, budget: Budget) -> str:
    found = pair.measurements.get(budget.metric)
    if found is None:
        return f"{budget.metric} does not apply to {pair.dtype} of shape {list(pair.shape)} ({budget.reason})"
    if budget.tolerance is None:
        return f"{budget.metric} {found.value:.3g} against {budget.limit:g} ({budget.reason})"
    allowed = f"atol {budget.tolerance.atol:g} + rtol {budget.tolerance.rtol:g} |reference|"
    if not found.value:
        return f"all {found.count:,} elements within {allowed} ({budget.reason})"
    by = f"by {pair.value('outside_excess'):.3g} at {list(found.worst_index or ())}"
    return f"{found.value:,.0f} of {found.count:,} elements outside {allowed}, the worst {by} ({budget.reason})"


def _meets_budget(pair: Pair, budget: Budget) -> bool:
    return keeps_limit(pair.value(budget.metric), budget, known_metrics().get(budget.metric, "lower"))


def _small_pairs() -> tuple[Statistics, ...]:
    """Pairs that every metric applies to at least one of: scores with channels, and integers."""
    scores = np.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], np.float32)
    numbers = np.array([1, 2])
    return (
        measure_pair(scores, scores, channel_axis=1, as_scores=True),
        measure_pair(numbers, numbers, channel_axis=None),
    )
