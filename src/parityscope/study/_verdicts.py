"""Outputs' statistics + expectations + policy -> judged pairs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.case.policy import DECLARED
from parityscope.comparison import measure_all, to_plain
from parityscope.comparison.distance import error_distance
from parityscope.comparison.tolerance import measurements_of
from parityscope.expectation.grades import grade_of, graded_error, margin_of
from parityscope.records import Pair, Site
from parityscope.study._budgets import judge_by_budgets, said_of_budgets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.comparison import Statistics
    from parityscope.comparison.tolerance import OutsideTolerance
    from parityscope.records import Policy, Verdict


def pair_of(
    site: Site,
    statistics: Statistics,
    *,
    candidate_name: str,
    how: str,
    per_sample: Sequence[tuple[int, float]] = (),
    expected: Mapping[str, float] | None = None,
    outside: OutsideTolerance | None = None,
    is_output: bool = False,
) -> Pair:
    """A pair with every metric that applies to it, graded where an expectation is at hand."""
    found = dict(measure_all(statistics))
    if outside is not None:
        found.update({one.metric: one for one in measurements_of(outside)})
    expected = expected or {}
    worst = max(per_sample, key=lambda one: math.inf if math.isnan(one[1]) else one[1], default=(0, 0.0))
    return Pair(
        site=site,
        candidate_name=candidate_name,
        how=how,
        dtype=statistics.reference_dtype,
        shape=statistics.shape,
        samples=statistics.samples,
        measurements=found,
        nonfinite_reference=statistics.nonfinite_reference,
        nonfinite_candidate=statistics.nonfinite_candidate,
        nonfinite_agreeing=statistics.nonfinite_agreeing,
        per_sample=tuple(error for _, error in per_sample),
        worst_sample=worst[0],
        is_output=is_output,
        grade=grade_of(graded_error(statistics), expected) if expected else None,
        expected=expected,
        statistics=to_plain(statistics) if is_output else {},
    )


def judge_pair(pair: Pair, statistics: Statistics, policy: Policy) -> Verdict:
    """The verdict on one output: by the budgets that apply to it, else by its grade."""
    if statistics.nonfinite_agreeing == statistics.count:  # nothing has a size: no elements, or NaN on both sides
        return "incomplete"
    by = judge_by_budgets(pair, policy)
    if by is not None:
        return by
    if pair.nonfinite_reference or pair.nonfinite_candidate:
        return "beyond"
    if error_distance(statistics) == 0.0:
        return "within"
    if policy.declared not in DECLARED:
        return "incomplete"
    error = graded_error(statistics)
    limits = {name: pair.expected[name] * margin_of(name) for name in DECLARED if name in pair.expected}
    if any(error <= limit for name, limit in limits.items() if _is_covered(policy.declared, name, pair)):
        return "within"
    if policy.declared in limits:
        return "beyond"
    # Nobody knows what the declared arithmetic costs, unless a coarser one would be no excuse either.
    coarser = [limit for name, limit in limits.items() if not _is_covered(policy.declared, name, pair)]
    return "beyond" if coarser and error > max(coarser) else "incomplete"


def has_budget(pair: Pair, policy: Policy) -> bool:
    """Whether the policy has a budget of its own for this output."""
    return judge_by_budgets(pair, policy) is not None


def reason_for(pair: Pair, policy: Policy) -> str:
    """Why the verdict on an output is what it is, in one sentence."""
    paired = "row by row, paired by value: " if pair.site.tensor in policy.matched else ""
    return paired + _reason_of(pair, policy)


def _reason_of(pair: Pair, policy: Policy) -> str:
    if pair.statistics and pair.nonfinite_agreeing == pair.statistics["count"]:
        what = "all its values are NaN or infinite on both sides" if pair.nonfinite_agreeing else "it has no elements"
        return f"nothing could be compared: {what}"
    said = pair.apart or said_of_budgets(pair, policy)
    if said:
        return said
    if pair.nonfinite_candidate or pair.nonfinite_reference:
        return f"{pair.nonfinite_candidate} elements are NaN or Inf only in the candidate, or differently there"
    measured = pair.value("rel_l2" if "rel_l2" in pair.measurements else "mismatch_share")
    expected = pair.expected.get(policy.declared, pair.expected.get("f32"))
    if expected is None or pair.verdict == "incomplete":
        known = f"measured {measured:.3g}; no expectation for {policy.declared} could be computed"
        return f"{known}; state a budget, such as --budget rel_l2=1e-3"
    if math.isinf(measured):
        absolute = f"{pair.value('rms_error'):.3g}; {policy.declared} rounding explains {expected:.3g}"
        return f"the reference is zero everywhere; the candidate's root mean square is {absolute}"
    ratio = measured / expected if expected else math.inf
    return f"measured {measured:.3g}; {policy.declared} rounding explains {expected:.3g} on these samples (ratio {ratio:.3g})"


def _is_covered(declared: str, name: str, pair: Pair) -> bool:
    """Whether an error expected of `name` is excused by the declared arithmetic."""
    if name not in pair.expected or declared not in DECLARED:
        return False
    return DECLARED.index(name) <= DECLARED.index(declared)
