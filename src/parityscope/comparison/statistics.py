"""Sufficient statistics of a pair of tensors: everything that any metric needs, small, and exact to merge.

A pair is measured once (`measure_pair`); metrics are computed from the record at leisure (`measurements`). Records of
blocks or of samples merge: counts and histograms exactly, sums to float64 rounding.

Non-finite values never enter a sum. They are counted in four kinds: in the reference only, in the candidate only, in
both but different (+Inf against NaN, +Inf against -Inf), and agreeing (both NaN, or the same infinity). The first three
are disagreements and make every error that they could hide in infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.comparison._channels import Channels, merge_channels
from parityscope.comparison._histogram import Histogram, Sketch, merge_histograms, merge_sketches
from parityscope.comparison._scores import Scores, merge_scores

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Exact", "Floats", "Moments", "Statistics", "merge", "merge_floats", "scaled"]

_NO_STATES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Float64 sums over the pairs whose values are both finite; r the reference, c the candidate, e = c - r.

    Values were divided by 2^exponent first: sums of values are in that unit, sums of squares in its square. It is 0
    for everything but float64 tensors with magnitudes beyond 2^100 or all below 2^-100.
    """

    error: float = 0.0
    abs_error: float = 0.0
    error2: float = 0.0
    reference: float = 0.0
    candidate: float = 0.0
    reference2: float = 0.0
    candidate2: float = 0.0
    product: float = 0.0
    exponent: int = 0

    def at(self, exponent: int) -> Moments:
        """The same sums in the unit 2^exponent."""
        one, two = self.exponent - exponent, 2 * (self.exponent - exponent)
        return Moments(
            error=scaled(self.error, one),
            abs_error=scaled(self.abs_error, one),
            error2=scaled(self.error2, two),
            reference=scaled(self.reference, one),
            candidate=scaled(self.candidate, one),
            reference2=scaled(self.reference2, two),
            candidate2=scaled(self.candidate2, two),
            product=scaled(self.product, two),
            exponent=exponent,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Floats:
    """What is kept of a pair of floating-point tensors.

    `finite` counts the pairs that the moments, the sketch and the histograms are over. `ulp` is the sum and `ulp_max`
    the largest of their distances, in steps of the candidate's dtype. `max_abs` is the largest |e| (the lowest index of
    several). Ranges are (smallest, largest) over finite pairs; (0, 0) when there are none. Histograms of values have
    the bins 0 (zero) and +-(4096 + e) for 2^e <= |x| < 2^(e+1).
    """

    finite: int
    reference_only: int
    candidate_only: int
    conflicting: int
    agreeing: int
    first_disagreeing: tuple[int, ...] | None
    moments: Moments
    ulp: float
    ulp_max: float
    max_abs: float
    max_index: tuple[int, ...] | None
    reference_range: tuple[float, float]
    candidate_range: tuple[float, float]
    sketch: Sketch
    reference_values: Histogram
    candidate_values: Histogram

    @property
    def disagreeing(self) -> int:
        """Elements that are non-finite on one side only, or differently on both."""
        return self.reference_only + self.candidate_only + self.conflicting


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """What is kept of integers, booleans and strings; `max_difference` is None for strings."""

    mismatches: int
    first_mismatch: tuple[int, ...] | None
    max_difference: int | None
    max_index: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """One tensor of both sides, or several samples of it merged.

    `count` is the number of elements compared (real and imaginary parts of complex tensors count each); `shape` that
    of the first sample; `samples` how many were merged. Exactly one of `floats` and `exact` is there. `states` holds
    what metrics from outside accumulated, by their name.
    """

    kind: Literal["float", "complex", "exact", "text"]
    reference_dtype: str
    candidate_dtype: str
    shape: tuple[int, ...]
    samples: int
    count: int
    floats: Floats | None = None
    exact: Exact | None = None
    channels: Channels | None = None
    scores: Scores | None = None
    states: Mapping[str, Any] = field(default_factory=lambda: _NO_STATES)

    @property
    def is_float(self) -> bool:
        """Whether errors have a size here: not for integers, booleans and strings, which are equal or not."""
        return self.floats is not None

    @property
    def rel_l2(self) -> float:
        """|c - r| / |r| as the metric of this name defines it; NaN where errors have no size."""
        if self.floats is None:
            return math.nan
        return math.inf if self.floats.disagreeing else self.rel_l2_finite

    @property
    def rel_l2_finite(self) -> float:
        """|c - r| / |r| over the pairs in which both values are finite; NaN where errors have no size."""
        if self.floats is None:
            return math.nan
        moments = self.floats.moments
        if moments.error2 == 0:
            return 0.0
        return math.sqrt(moments.error2 / moments.reference2) if moments.reference2 else math.inf

    @property
    def mismatch_share(self) -> float:
        """Share of unequal integers, booleans or strings; NaN for floats."""
        if self.exact is None:
            return math.nan
        return self.exact.mismatches / self.count if self.count else 0.0

    @property
    def nonfinite_reference(self) -> int:
        """Elements that are non-finite in the reference and do not agree."""
        return 0 if self.floats is None else self.floats.reference_only + self.floats.conflicting

    @property
    def nonfinite_candidate(self) -> int:
        """Elements that are non-finite in the candidate and do not agree."""
        return 0 if self.floats is None else self.floats.candidate_only + self.floats.conflicting

    @property
    def nonfinite_agreeing(self) -> int:
        """Elements that are NaN on both sides, or the same infinity."""
        return 0 if self.floats is None else self.floats.agreeing

    def merge(self, other: Statistics) -> Statistics:
        """As `merge(self, other)`."""
        return merge(self, other)


def merge(first: Statistics, second: Statistics) -> Statistics:
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
        factors = (_factor(first.floats.moments, unit), _factor(second.floats.moments, unit))
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


def scaled(value: float, exponent: int) -> float:
    """Gives value * 2^exponent; infinite where float64 ends."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _merge_moments(first: Moments, second: Moments) -> Moments:
    """Sums over both, in the larger unit of those that hold anything but zeros."""
    unit = max((moments.exponent for moments in (first, second) if _holds(moments)), default=0)
    one, two = first.at(unit), second.at(unit)
    return Moments(
        error=one.error + two.error,
        abs_error=one.abs_error + two.abs_error,
        error2=one.error2 + two.error2,
        reference=one.reference + two.reference,
        candidate=one.candidate + two.candidate,
        reference2=one.reference2 + two.reference2,
        candidate2=one.candidate2 + two.candidate2,
        product=one.product + two.product,
        exponent=unit,
    )


def _holds(moments: Moments) -> bool:
    return moments.reference2 > 0 or moments.candidate2 > 0


def _factor(moments: Moments, unit: int) -> float:
    """What sums of squares are multiplied by to be in `unit`; sums of nothing but zeros stay as they are."""
    return scaled(1.0, 2 * (moments.exponent - unit)) if _holds(moments) else 1.0


def merge_floats(first: Floats, second: Floats) -> Floats:
    """Statistics over the elements of both."""
    larger = second if second.max_index is not None and second.max_abs > first.max_abs else first
    if first.max_index is None:
        larger = second
    return Floats(
        finite=first.finite + second.finite,
        reference_only=first.reference_only + second.reference_only,
        candidate_only=first.candidate_only + second.candidate_only,
        conflicting=first.conflicting + second.conflicting,
        agreeing=first.agreeing + second.agreeing,
        first_disagreeing=second.first_disagreeing if first.first_disagreeing is None else first.first_disagreeing,
        moments=_merge_moments(first.moments, second.moments),
        ulp=first.ulp + second.ulp,
        ulp_max=max(first.ulp_max, second.ulp_max),
        max_abs=larger.max_abs,
        max_index=larger.max_index,
        reference_range=_merge_ranges(first, second, first.reference_range, second.reference_range),
        candidate_range=_merge_ranges(first, second, first.candidate_range, second.candidate_range),
        sketch=merge_sketches(first.sketch, second.sketch),
        reference_values=merge_histograms(first.reference_values, second.reference_values),
        candidate_values=merge_histograms(first.candidate_values, second.candidate_values),
    )


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
        return _NO_STATES
    from parityscope.comparison._metric import metrics

    combine = {metric.name: metric.combine for metric in metrics()}
    joined: dict[str, Any] = {}
    for name in (*first, *(name for name in second if name not in first)):
        function = combine.get(name)
        if name in first and name in second and function is not None:
            joined[name] = function(first[name], second[name])
    return MappingProxyType(joined)
