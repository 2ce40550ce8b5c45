"""Outputs of `after` against the budgets of the policy: pooled, and as a distribution-free statement about samples.

A budget is kept when the pooled number keeps it and, by Clopper and Pearson's bound, at least `COVERAGE` of samples like
these keep it, with `CONFIDENCE`: 59 samples without a miss (Wilks), 93 with one. It is missed when the pooled number
misses it, or so many samples do that this share is ruled out. In between it is not proved, and the number of samples that
would do is said.
What keeps a limit is said in `parityscope.case.limits`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.limits import keeps_limit
from parityscope.case.policy import budgets_for
from parityscope.comparison.metric import better_directions
from parityscope.errors import ParityError
from parityscope.verification.exact import compliance_bounds, samples_for_coverage
from parityscope.verification.output_errors import budget_key
from parityscope.verification.records import BudgetCheck

if TYPE_CHECKING:
    from parityscope.records import Budget, Policy
    from parityscope.verification.output_errors import OutputErrors

# 95 % of samples with 95 % confidence: the usual tolerance interval, which 59 clean samples show (Wilks 1941).
COVERAGE = 0.95
CONFIDENCE = 0.95


def check_budgets(policy: Policy, before: OutputErrors, after: OutputErrors) -> tuple[BudgetCheck, ...]:
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
    lower, upper = compliance_bounds(misses, len(singles), CONFIDENCE)
    beyond = not keeps_limit(pooled, budget, better) or upper < COVERAGE
    return BudgetCheck(
        output=after.name,
        budget=budget,
        before=before.budgeted[key][-1],
        after=pooled,
        misses=misses,
        samples=len(singles),
        bound=lower,
        coverage=COVERAGE,
        confidence=CONFIDENCE,
        needed=samples_for_coverage(misses, COVERAGE, CONFIDENCE),
        floor=after.floor if key == "rel_l2" else 0.0,
        verdict="beyond" if beyond else "within" if lower >= COVERAGE else "not proved",
    )
