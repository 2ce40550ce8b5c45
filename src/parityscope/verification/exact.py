"""Exact, distribution-free statements about counts: McNemar's test, Clopper and Pearson's bound, Wilks' numbers.

Binomial probabilities are those of `scipy.special`, exact in float64; no normal approximation is used.

* McNemar (1947), exact form: of the samples on which two decisions differ in being right, b are right only before and c
  only after. If neither side were better, b would be binomial(b + c, 1/2): p = min(1, 2 P(X <= min(b, c))).
* Clopper and Pearson (1934): with k misses in n samples, the share of samples that comply is at least the p at which
  P(Binomial(n, 1 - p) <= k) is 1 - confidence. For k = 0 this is (1 - confidence)^(1/n), the "rule of three".
* Wilks (1941): the smallest n for which that bound reaches a coverage: 59 clean samples for 95 % with 95 % confidence,
  22 for 90 % with 90 %; 93 samples if one of them misses.
"""

from __future__ import annotations

import bisect

_MOST = 10_000_000  # samples; beyond it nobody measures


def binomial_at_most(k: int, n: int, p: float) -> float:
    """P(X <= k) for X ~ Binomial(n, p)."""
    from scipy.special import bdtr

    return float(bdtr(min(k, n), n, min(max(p, 0.0), 1.0))) if k >= 0 else 0.0


def mcnemar_p_value(only_before: int, only_after: int) -> float:
    """The exact two-sided p-value of McNemar's test; 1 where no decision differs."""
    differing = only_before + only_after
    return min(1.0, 2.0 * binomial_at_most(min(only_before, only_after), differing, 0.5)) if differing else 1.0


def sign_test(better: int, worse: int) -> float:
    """The exact two-sided p-value of the sign test over samples that differ (the arithmetic of McNemar's)."""
    return mcnemar_p_value(worse, better)


def compliance_bounds(misses: int, samples: int, confidence: float) -> tuple[float, float]:
    """One-sided Clopper-Pearson bounds of the share of samples that comply: (lower, upper), each with `confidence`."""
    from scipy.special import bdtri

    if samples == 0:
        return 0.0, 1.0
    tail = 1.0 - confidence
    # `bdtri` gives the p at which P(Binomial(n, p) <= k) is a given number. With a larger share than the upper bound, so many
    # misses or more would be rarer than `tail`.
    lower = 0.0 if misses == samples else 1.0 - float(bdtri(misses, samples, tail))
    upper = 1.0 if misses == 0 else 1.0 - float(bdtri(misses - 1, samples, 1.0 - tail))
    return lower, upper


def samples_for_coverage(misses: int, coverage: float, confidence: float) -> int:
    """The smallest number of samples, `misses` of which miss, that shows `coverage` with `confidence`."""
    tail = 1.0 - confidence
    return bisect.bisect_left(
        range(_MOST), True, lo=misses, key=lambda count: binomial_at_most(misses, count, 1.0 - coverage) <= tail
    )
