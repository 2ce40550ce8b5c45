"""Statistics of two parts -> statistics of the whole: counts and histograms exactly, sums to float64 rounding."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.comparison._channels import merge_channels
from parityscope.comparison._histogram import merge_histograms, merge_sketches
from parityscope.comparison._scores import merge_scores
from parityscope.comparison.moments import Moments, merge_moments, scale_by_power
from parityscope.comparison.statistics import NO_STATES, Exact, Floats, Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping


def merge_statistics(first: Statistics, second: Statistics) -> Statistics:
    """Statistics over the elements of both; of equal worst elements the one of `first` is named.

    Raises:
        ValueError: one holds floats and the other does not, or their dtypes differ.
    """
    if (first.kind, first.reference_dtype, first.candidate_dtype) != (
        second.kind,
        second.reference_dtype,
        second.candidate_dtype,
    ):
        raise ValueError(
            f"statistics of {first.reference_dtype} against {first.candidate_dtype} and of "
            f"{second.reference_dtype} against {second.candidate_dtype} cannot be merged"
        )
    floats = exact = None
    factors = (1.0, 1.0)
    if first.floats is not None and second.floats is not None:
        floats = merge_floats(first.floats, second.floats)
        unit = floats.moments.exponent
        factors = (_unit_factor(first.floats.moments, unit), _unit_factor(second.floats.moments, unit))
    if first.exact is not None and second.exact is not None:
        exact = _merge_exact(first.exact, second.exact)
    return Statistics(
        kind=first.kind,
        reference_dtype=first.reference_dtype,
        candidate_dtype=first.candidate_dtype,
        shape=first.shape,
        samples=first.samples + second.samples,
        count=first.count + second.count,
        floats=floats,
        exact=exact,
        channels=merge_channels(first.channels, second.channels, factors=factors),
        scores=merge_scores(first.scores, second.scores),
        states=_merge_states(first.states, second.states),
    )


def merge_floats(first: Floats, second: Floats) -> Floats:
    """Statistics over the elements of both."""
    larger = second if second.max_index is not None and second.max_abs > first.max_abs else first
    if first.max_index is None:
        larger = second
    relative = second if second.max_rel > first.max_rel else first
    return Floats(
        finite=first.finite + second.finite,
        reference_only=first.reference_only + second.reference_only,
        candidate_only=first.candidate_only + second.candidate_only,
        conflicting=first.conflicting + second.conflicting,
        agreeing=first.agreeing + second.agreeing,
        first_disagreeing=second.first_disagreeing if first.first_disagreeing is None else first.first_disagreeing,
        moments=merge_moments(first.moments, second.moments),
        ulp=first.ulp + second.ulp,
        ulp_max=max(first.ulp_max, second.ulp_max),
        max_abs=larger.max_abs,
        max_index=larger.max_index,
        max_rel=relative.max_rel,
        max_rel_index=relative.max_rel_index,
        zero_references=first.zero_references + second.zero_references,
        reference_range=_merge_ranges(first, second, first.reference_range, second.reference_range),
        candidate_range=_merge_ranges(first, second, first.candidate_range, second.candidate_range),
        sketch=merge_sketches(first.sketch, second.sketch),
        reference_values=merge_histograms(first.reference_values, second.reference_values),
        candidate_values=merge_histograms(first.candidate_values, second.candidate_values),
    )


def _unit_factor(moments: Moments, unit: int) -> float:
    """What sums of squares are multiplied by to be in `unit`; sums of nothing but zeros stay as they are."""
    return scale_by_power(1.0, 2 * (moments.exponent - unit)) if moments.holds_values else 1.0


def _merge_ranges(
    first: Floats, second: Floats, one: tuple[float, float], two: tuple[float, float]
) -> tuple[float, float]:
    if not first.finite:
        return two
    if not second.finite:
        return one
    return min(one[0], two[0]), max(one[1], two[1])


def _merge_exact(first: Exact, second: Exact) -> Exact:
    one, two = first.max_difference, second.max_difference
    larger = second if (two or 0) > (one or 0) else first
    return Exact(
        mismatches=first.mismatches + second.mismatches,
        first_mismatch=second.first_mismatch if first.first_mismatch is None else first.first_mismatch,
        max_difference=larger.max_difference,
        max_index=larger.max_index,
    )


def _merge_states(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Joined by the metrics that made them; empty where neither side holds any, which is the usual case."""
    if not first and not second:
        return NO_STATES
    from parityscope.comparison.metric import all_metrics

    combine = {metric.name: metric.combine for metric in all_metrics()}
    joined: dict[str, Any] = {}
    for name in (*first, *(name for name in second if name not in first)):
        function = combine.get(name)
        if name in first and name in second and function is not None:
            joined[name] = function(first[name], second[name])
    return MappingProxyType(joined)
