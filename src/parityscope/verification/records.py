"""What `verify` found: frozen records that compute nothing.

`before` and `after` stand in this order everywhere, and a difference is after - before. Values are of the reference's
model on real samples; the reference itself is never judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.records import Budget, Skip, Target

#: `beyond`: a budget that was given is missed, whether or not it became better.
Verdict = Literal["improved", "within", "not proved", "worse", "beyond"]
Outcome = Literal["improved", "same", "not proved", "worse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """A target as it ran; `nbytes` is the model with its external data (None: not a file of ours).

    `spread` is the worst distance between two runs of it on the first sample: 0 for a deterministic runtime.
    """

    target: Target
    environment: Mapping[str, str]
    executed: str
    nbytes: int | None
    nodes: int | None
    spread: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Samples that are right on one side only, and McNemar's exact two-sided p-value.

    Right is agreeing with the labels, or without any with the reference.
    """

    both: int
    only_before: int
    only_after: int
    neither: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number on both sides, pooled over the samples, with the interval of its difference.

    `kind` is "output" (an error against the reference) or "task". `per_sample` values are NaN where the number has no
    meaning for a single sample; `improved`, `equal` and `worsened` count samples, and `p_value` is of their signs (of
    McNemar's test where there are `decisions`). `needed` is the number of samples that would prove the observed difference.
    """

    name: str
    kind: Literal["output", "task"]
    title: str
    better: Literal["lower", "higher"]
    against: Literal["labels", "reference"]
    before: float
    after: float
    low: float
    high: float
    confidence: float
    method: str
    resamples: int
    improved: int
    equal: int
    worsened: int
    p_value: float
    outcome: Outcome
    needed: int | None
    per_sample_before: tuple[float, ...]
    per_sample_after: tuple[float, ...]
    decisions: Decisions | None = None

    @property
    def difference(self) -> float:
        """Gives after - before; 0 for two equal infinities."""
        return 0.0 if self.before == self.after else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCheck:
    """One output against one budget: pooled, and sample by sample.

    With the stated confidence at least the share `bound` of samples like these keep the budget; `needed` clean samples
    (or with as many misses as now) would show the coverage that is asked. `floor` is the root mean square below which the
    size of an output counts no less, in single samples and for rel_l2.
    """

    output: str
    budget: Budget
    before: float
    after: float
    misses: int
    samples: int
    bound: float
    coverage: float
    confidence: float
    needed: int
    verdict: Literal["within", "not proved", "beyond"]
    floor: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMeasurements:
    """Every metric of one output over all samples on both sides, and NaN and Inf that the reference does not have."""

    output: str
    dtype: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    nonfinite_before: int
    nonfinite_after: int
    decisions: Decisions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTiming:
    """Latencies of one side in seconds: `mad` is the median absolute deviation, `p95` the 95th percentile."""

    median: float
    mad: float
    p95: float
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Both sides, timed in turns in one process; `speedup` is before over after, of the medians, with its interval."""

    before: SideTiming
    after: SideTiming
    rounds: int
    warm_up: int
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A sample that got worse in one quantity."""

    index: int
    sample: str
    quantity: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Before and after on the undisturbed deployment, the verdict, and the sentences that give its reasons.

    `because` starts with the sentence that decided. `refuted` says that the repair did not survive.
    """

    verdict: Verdict
    because: tuple[str, ...]
    refuted: bool
    samples: tuple[str, ...]
    reference: MeasuredSide
    before: MeasuredSide
    after: MeasuredSide
    quantities: tuple[Quantity, ...]
    budgets: tuple[BudgetCheck, ...]
    outputs: tuple[OutputMeasurements, ...]
    latency: Latency | None
    regressions: tuple[Regression, ...]
    skipped: tuple[Skip, ...]
    seed: int
    needed: int | None
    seconds: float
