"""Arithmetics whose error has a known size and an unknown direction: accepted by magnitude, where they are declared.

Sums in FP16 in an unknown order differ by whole roundings from any order that can be tried. What is known is taken out
first: with f_h the region on operands rounded to the format and summed exactly, the rest c - f_h(c_in) has the second moments
of the accumulator's roundings in a random order (`floor`) and of the output's, (0.4247 u y)^2, or for a number below the
normal range a step's s^2 / 12. It is accepted if

* in no channel, nor in the whole tensor, its root mean square is more than `SIZE` = 2 times that (chi-square, no discovery);
* no element is beyond `PEAK` = 4 times the largest of as many normal numbers, sqrt(2 ln n) standard deviations;
* it is no smaller than half of it either, by the median of all elements, which a fault in a part cannot lift (the
  median magnitude of a normal number is 0.6745 standard deviations); or an order that was tried explains half of the error.

An error of another kind and the same size cannot be told from it, so it needs a candidate that declares or executes the format.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.expectation.error_model import ROUNDING
from parityscope.explanation.claims import predict_output
from parityscope.explanation.floor import noise_floor
from parityscope.explanation.judging import PEAK, SIZE
from parityscope.explanation.records import Explained
from parityscope.explanation.regression import above_floor, discovery_cutoff

if TYPE_CHECKING:
    from parityscope.explanation.claims import VariantClaim
    from parityscope.explanation.weighed import Weighed

__all__ = ["expected_by_size"]

_MEDIAN = 0.6745  # median magnitude of a normal number, in standard deviations
_SUBSTANTIAL = 0.5  # of the error: what one order of summation must explain where magnitudes alone do not agree


def expected_by_size(weighed: Weighed, others: np.ndarray, declared: str) -> Explained | None:
    """The claim whose magnitude the error has; None where there is none, or the candidate declares something else."""
    for claim in weighed.by_size:
        if declared and claim.hypothesis.name.startswith(declared):
            found = _hold_by_size(weighed, claim, others)
            if found is not None:
                return found
    return None


def _hold_by_size(weighed: Weighed, claim: VariantClaim, others: np.ndarray) -> Explained | None:
    scene = weighed.scene
    if not weighed.budget.pay(weighed.price.settling, claim.hypothesis.title):
        return None
    exact = predict_output(scene, claim)
    if exact is None or not (np.isfinite(exact).all() and np.isfinite(scene.candidate).all()):
        return None
    left = scene.candidate - exact
    sigma = _expected_spread(weighed, claim, np.asarray(exact, np.float64))
    ratios, chances = above_floor(left, sigma, scene.axis, SIZE)
    whole, chance = above_floor(left, sigma, None, SIZE)
    chances = np.append(chances, chance)
    above = chances <= discovery_cutoff(np.concatenate([chances, others]))
    reached = np.abs(left) / np.where(sigma > 0, sigma, 1.0)
    farthest = PEAK * max(1.0, math.sqrt(2.0 * math.log(max(1, left.size))))
    if above.any() or bool(((sigma == 0) & (left != 0)).any()) or float(reached.max()) > farthest:
        return None
    share = _best_order(weighed, claim)
    nearest = f"; the nearest order explains {share:.0%}" if share > 0 else ""
    usual = float(np.median(reached[sigma > 0])) / _MEDIAN if (sigma > 0).any() else 0.0
    if usual < 1.0 / SIZE and share < _SUBSTANTIAL:
        return None
    size = float(whole[0])
    return Explained(
        hypothesis=claim.hypothesis.name,
        title=f"expected of {claim.hypothesis.title}",
        family="arithmetic",
        words=f"{claim.variant.words}, {size:.2g} of what is predicted{nearest}",
        share=None,
        slope=math.nan,
        slope_error=math.nan,
        worst_z=float(ratios.max(initial=0.0)),
        channels=ratios.size,
    )


def _expected_spread(weighed: Weighed, claim: VariantClaim, exact: np.ndarray) -> np.ndarray:
    """Standard deviation of what accumulating and storing the output add: float64, of its shape."""
    scene, variant = weighed.scene, claim.variant
    generator = np.random.default_rng(scene.seed)
    sigma = noise_floor(scene.model, scene.feeds, scene.sessions, replace(variant, output=None), generator, scene.axis)
    if variant.output is None:
        return sigma
    stored = FORMATS[variant.output.name]
    step = ROUNDING * variant.output.unit * np.abs(exact)
    step = np.where(np.abs(exact) < stored.smallest_normal, stored.smallest_subnormal / math.sqrt(12.0), step)
    return np.asarray(np.sqrt(np.square(sigma) + np.square(np.where(exact == 0, 0.0, step))))


def _best_order(weighed: Weighed, claim: VariantClaim) -> float:
    """The largest share that an order of summation of this hypothesis explains; 0 where none explains any."""
    shares = [each.line.share for each in weighed.outcomes if each.claim.hypothesis.name == claim.hypothesis.name]
    return max((share for share in shares if share > 0), default=0.0)
