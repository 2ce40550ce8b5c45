"""Sufficient statistics of a pair of tensors: everything that any metric needs, small, and exact to merge.

A pair is measured once (`measure_pair`); metrics are computed from the record at leisure (`measurements`). Records of
blocks or of samples merge: counts and histograms exactly, sums to float64 rounding.

Non-finite values never enter a sum. They are counted in four kinds: in the reference only, in the candidate only, in
both but different (+Inf against NaN, +Inf against -Inf), and agreeing (both NaN, or the same infinity). The first three
are disagreements and make every error that they could hide in infinite.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison._channels import Channels
    from parityscope.comparison._histogram import Histogram, Sketch
    from parityscope.comparison._scores import Scores
    from parityscope.comparison.moments import Moments

NO_STATES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Floats:
    """What is kept of a pair of floating-point tensors.

    `finite` counts the pairs that the moments, the sketch and the histograms are over. `ulp` is the sum and `ulp_max`
    the largest of their distances, in steps of the candidate's dtype. `max_abs` is the largest |e| (the lowest index of
    several), `max_rel` the largest |e| / |r| of an element whose reference is not zero, likewise; `zero_references`
    counts the elements whose reference is (in float64 also one below 2^-1074 of the tensor's largest). Ranges
    are (smallest, largest) over finite pairs; (0, 0) when there are none. Histograms of values have the bins 0 (zero)
    and +-(4096 + e) for 2^e <= |x| < 2^(e+1).
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
    max_rel: float
    max_rel_index: tuple[int, ...] | None
    zero_references: int
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
    states: Mapping[str, Any] = field(default_factory=lambda: NO_STATES)

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
