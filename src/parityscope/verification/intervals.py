"""Paired bootstrap: how sure is the difference between before and after, on samples like these?

Samples are drawn with replacement, the same for both sides, and both pooled values are computed again each time. The
interval of the difference is BCa (bias-corrected and accelerated: Efron 1987; Efron and Tibshirani 1993, chapter 14,
with the acceleration from the jackknife, which leaves out one sample, or one of as many groups as there are draws where
samples are more). Where a value is infinite, or the jackknife has no skewness to tell, it is
the percentile interval: infinities keep their place in the order and nothing is averaged. All arithmetic is float64;
the seed is part of the record.

A bootstrap interval of very few samples is too short. Below `FEWEST` nothing is called proved: no exact two-sided test
of the signs reaches 5 % with fewer (2 / 2^5 = 0.0625, 2 / 2^6 = 0.031).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_ONCE = 1 << 18  # samples drawn before they are combined, chosen: 6 MiB of three sums each

# What is kept of each sample, in order: rows of an array, or any objects.
States = np.ndarray | list[Any]

CONFIDENCE = 0.95
FEWEST = 6
_POWER = 0.8  # chosen, as is usual (Cohen 1988): the share of repetitions in which so many samples would prove it

Method = Literal["bca", "percentile", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The interval of after - before; `error` is the bootstrap's standard error (NaN where values are infinite).

    The method is "none", and the ends are infinite, where fewer than two samples tell nothing.
    """

    low: float
    high: float
    error: float
    method: Method
    resamples: int


def bootstrap_interval(
    before: States,
    after: States,
    combine: Callable[[States], float],
    *,
    seed: int,
    resamples: int,
    combine_draws: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Interval:
    """The interval of combine(after) - combine(before) over resampled samples.

    `before` and `after` hold what is kept of each sample (rows of an array, or any objects), in the same order.
    `combine_draws` does for many draws, (draws, samples, ...) -> (draws,), what `combine` does for one.
    """
    count = len(before)
    if count < 2:
        return Interval(low=-math.inf, high=math.inf, error=math.nan, method="none", resamples=0)
    generator = np.random.default_rng(seed)
    found = _differences_of_draws(before, after, combine, combine_draws, generator, resamples)
    tails = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    method: Method = "percentile"
    error = math.nan
    if np.isfinite(found).all():
        error = float(found.std(ddof=1))
        everything = np.arange(count)
        groups = np.array_split(everything, min(count, resamples))
        left_out = np.array(
            [_difference_of_draw(before, after, combine, np.delete(everything, group)) for group in groups]
        )
        corrected = _bca_tails(found, left_out, _difference_of_draw(before, after, combine, everything), tails)
        if corrected is not None:
            tails, method = corrected, "bca"
    low, high = _outward_quantiles(np.sort(found), tails)
    return Interval(low=low, high=high, error=error, method=method, resamples=resamples)


def samples_needed(difference: float, error: float, samples: int) -> int | None:
    """How many samples would prove `difference` if it is real; None where the observed spread cannot tell.

    The standard error falls with the root of the number of samples: n' = n ((z(97.5 %) + z(80 %)) error / difference)^2.
    """
    if not (math.isfinite(difference) and math.isfinite(error)) or difference == 0.0:
        return None
    normal = NormalDist()
    reach = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(_POWER)
    return max(FEWEST, math.ceil(samples * (reach * error / difference) ** 2))


def take_states(states: States, places: np.ndarray) -> States:
    """The states at `places`, int64 (n,): rows of an array, or a list."""
    if isinstance(states, np.ndarray):
        picked: np.ndarray = states[places]
        return picked
    return [states[int(place)] for place in places]


def _difference_of_draw(before: States, after: States, combine: Callable[[States], float], places: np.ndarray) -> float:
    """After - before; two equal infinities differ by nothing."""
    first, second = combine(take_states(before, places)), combine(take_states(after, places))
    return 0.0 if first == second else second - first


def _differences_of_draws(
    before: States,
    after: States,
    combine: Callable[[States], float],
    combine_draws: Callable[[np.ndarray], np.ndarray] | None,
    generator: np.random.Generator,
    resamples: int,
) -> np.ndarray:
    """After - before of every draw, float64 (resamples,)."""
    count = len(before)
    if combine_draws is None or not (isinstance(before, np.ndarray) and isinstance(after, np.ndarray)):
        draws = (generator.integers(0, count, count) for _ in range(resamples))
        return np.array([_difference_of_draw(before, after, combine, places) for places in draws])
    found = np.empty(resamples)
    step = max(1, _AT_ONCE // count)
    for at in range(0, resamples, step):
        places = generator.integers(0, count, (min(step, resamples - at), count))
        first, second = combine_draws(before[places]), combine_draws(after[places])
        with np.errstate(invalid="ignore"):  # of two equal infinities, which differ by nothing
            found[at : at + step] = np.where(first == second, 0.0, second - first)
    return found


def _bca_tails(
    found: np.ndarray, left_out: np.ndarray, observed: float, tails: tuple[float, float]
) -> tuple[float, float] | None:
    """The corrected tails; None where bias or acceleration are not defined."""
    normal = NormalDist()
    # Ties count half: a difference of discrete scores often repeats the observed value.
    below = float(np.mean(found < observed) + np.mean(found == observed) / 2)
    spread = left_out.mean() - left_out
    size = float((spread**2).sum())
    if not 0.0 < below < 1.0 or size == 0.0 or not math.isfinite(size):
        return None
    bias = normal.inv_cdf(below)
    acceleration = float((spread**3).sum()) / (6.0 * size**1.5)
    corrected = []
    for tail in tails:
        shifted = bias + normal.inv_cdf(tail)
        if 1.0 - acceleration * shifted <= 0.0:
            return None
        corrected.append(normal.cdf(bias + shifted / (1.0 - acceleration * shifted)))
    return corrected[0], corrected[1]


def _outward_quantiles(ordered: np.ndarray, tails: tuple[float, float]) -> tuple[float, float]:
    """The elements at two quantiles, outward to the next one: no interpolation, which infinities do not survive."""
    last = len(ordered) - 1
    return float(ordered[math.floor(tails[0] * last)]), float(ordered[math.ceil(tails[1] * last)])
