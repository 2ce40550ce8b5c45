"""Exact, distribution-free statements about counts: McNemar's test, Clopper and Pearson's bound, Wilks' numbers.

Sums of binomial probabilities are taken in float64 over logarithms of factorials; no normal approximation is used.

* McNemar (1947), exact form: of the samples on which two decisions differ in being right, b are right only before and c
  only after. If neither side were better, b would be binomial(b + c, 1/2): p = min(1, 2 P(X <= min(b, c))).
* Clopper and Pearson (1934): with k misses in n samples, the share of samples that comply is at least the p at which
  P(Binomial(n, 1 - p) <= k) is 1 - confidence. For k = 0 this is (1 - confidence)^(1/n), the "rule of three".
* Wilks (1941): the smallest n for which that bound reaches a coverage: 59 clean samples for 95 % with 95 % confidence,
  22 for 90 % with 90 %; 93 samples if one of them misses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["binomial_at_most", "compliance_bounds", "mcnemar_p_value", "samples_for_coverage", "sign_test"]

_STEPS = 60  # bisections: [0, 1] to below 1e-18, the end of float64's resolution
_MOST = 10_000_000  # samples; beyond it nobody measures


def binomial_at_most(k: int, n: int, p: float) -> float:
    """P(X <= k) for X ~ Binomial(n, p)."""
    if k < 0:
        return 0.0
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    log_p, log_q = math.log(p), math.log1p(-p)
    top = math.lgamma(n + 1)
    terms = (
        math.exp(top - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q) for i in range(k + 1)
    )
    return min(1.0, math.fsum(terms))


def mcnemar_p_value(only_before: int, only_after: int) -> float:
    """The exact two-sided p-value of McNemar's test; 1 where no decision differs."""
    differing = only_before + only_after
    return min(1.0, 2.0 * binomial_at_most(min(only_before, only_after), differing, 0.5)) if differing else 1.0


def sign_test(better: int, worse: int) -> float:
    """The exact two-sided p-value of the sign test over samples that differ (the arithmetic of McNemar's)."""
    return mcnemar_p_value(worse, better)


def compliance_bounds(misses: int, samples: int, confidence: float) -> tuple[float, float]:
    """One-sided Clopper-Pearson bounds of the share of samples that comply: (lower, upper), each with `confidence`."""
    if samples == 0:
        return 0.0, 1.0
    tail = 1.0 - confidence
    lower = (
        0.0
        if misses == samples
        else _solve_border(lambda share: binomial_at_most(misses, samples, 1.0 - share) <= tail)
    )
    # With a larger share than `upper`, so many misses or more would be rarer than `tail`.
    upper = (
        1.0
        if misses == 0
        else _solve_border(lambda share: 1.0 - binomial_at_most(misses - 1, samples, 1.0 - share) > tail)
    )
    return lower, upper


def samples_for_coverage(misses: int, coverage: float, confidence: float) -> int:
    """The smallest number of samples, `misses` of which miss, that shows `coverage` with `confidence`."""
    low, high = misses, misses + 1
    while binomial_at_most(misses, high, 1.0 - coverage) > 1.0 - confidence:
        low, high = high, 2 * high
        if high > _MOST:
            return _MOST
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_at_most(misses, middle, 1.0 - coverage) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def _solve_border(holds: Callable[[float], bool]) -> float:
    """The border in [0, 1] below which `holds` is true."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
