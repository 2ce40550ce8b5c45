"""Whether a claim is accepted, among others, and how it is told."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import node_name
from parityscope.explanation.claims import output_of
from parityscope.explanation.records import Explained
from parityscope.explanation.regression import CONFIDENCE, MARGIN, RATE, discovery_cutoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.explanation.claims import ClaimOutcome, RegionScene, VariantClaim
    from parityscope.explanation.regression import RegressionLine

SHARE = 0.99  # of the squared error: the residual regression's bound (numerics notes: wrong recipes reach 0.68)
SHARE_ROUNDED = 0.9  # with a rounding of the output, whose ties fall differently in another order of summation
SIZE = 2.0  # of the predicted size, in each channel: the margin of the grades (docs/numerics.md)
PEAK = 4.0  # of the largest predicted element: twice the margin, for the tail of a tensor of millions
_SLOPE = 0.01  # a slope wrong by a hundredth costs 1e-4 of the share: a hundredth of what SHARE allows
_HOPEFUL = 0.8  # of the share: below it no floor, however high, makes a claim acceptable; chosen
# Elements of a channel: the energies of two lots of so many normal draws differ by a factor of SIZE^2 once in 240 times.
_DRAWS = 16


def is_accepted(outcome: ClaimOutcome, others: np.ndarray) -> bool:
    """Slope near one, share above the bound, no channel above the floor, and the same non-finite elements.

    A claim that predicts nothing is accepted where nothing is above the floor. The noise of the floor itself is not
    asked to be explained. `others` are the p-values, float64 (n,), of what else is tested.
    """
    if outcome.mismatched or _discovered_channels(outcome, others).any():
        return False
    line = outcome.line
    if not outcome.predicts:
        return True
    if line.predicted2 == 0:
        return line.left2 <= MARGIN**2 * outcome.floor2
    bound = SHARE if output_of(outcome.claim) is None else SHARE_ROUNDED
    if line.left2 > (1.0 - bound) * line.error2 + outcome.floor2:
        return False
    noise = math.sqrt(outcome.floor2 / line.predicted2)
    return abs(line.slope - 1.0) <= CONFIDENCE * line.slope_error + _SLOPE + noise


def surely_nothing(outcome: ClaimOutcome) -> bool:
    """Whether FP32 in another order explains a region, whatever else is tested: no p-value is small enough for a discovery."""
    return bool(outcome.chances.min(initial=1.0) > RATE) and is_accepted(outcome, np.zeros(0))


def is_in_size(outcome: ClaimOutcome, known: Sequence[ClaimOutcome], draws: float) -> bool:
    """Whether what is left is no larger than the roundings of one of `known` arithmetics, in any channel or element.

    Of several nodes that one engine kernel or several may run, the points where it rounds are not known, and then only
    the size of the rounding can be predicted. A channel of few independent elements (`draws`) has no size of its own: one
    rounding error may be a hundred times another. There the largest element and the tensor as a whole decide.
    """
    return not outcome.mismatched and any(
        _is_within_size(outcome, each, whole=draws < _DRAWS) and outcome.left_peak <= PEAK * each.peak for each in known
    )


def _is_within_size(outcome: ClaimOutcome, known: ClaimOutcome, *, whole: bool) -> bool:
    left, energy = (outcome.left_energy.sum(), known.energy.sum()) if whole else (outcome.left_energy, known.energy)
    return bool(np.all(left <= SIZE**2 * energy + outcome.floor2))


def _discovered_channels(outcome: ClaimOutcome, others: np.ndarray) -> np.ndarray:
    """Which of the channels, and last the whole tensor, are above the floor, among these and `others` (p-values)."""
    return outcome.chances <= discovery_cutoff(np.concatenate([outcome.chances, others]))


def summarize_outcome(scene: RegionScene, outcome: ClaimOutcome, others: np.ndarray) -> Explained:
    """The record of an outcome; `others` as for `is_accepted`."""
    claim = outcome.claim
    node = "" if claim.position < 0 else node_name(scene.model.graph[claim.position], claim.position)
    return Explained(
        hypothesis=claim.hypothesis.name,
        title=claim.hypothesis.title,
        family=claim.hypothesis.family,
        words=claim.variant.words,
        share=_explained_share(outcome),
        slope=outcome.line.slope,
        slope_error=outcome.line.slope_error,
        worst_z=float(outcome.ratios.max(initial=0.0)),
        channels=outcome.ratios.size,
        channels_above=int(_discovered_channels(outcome, others)[: outcome.ratios.size].sum()),
        elements_above=outcome.elements_above,
        mismatched=outcome.mismatched,
        node=node,
        on_top_of=claim.base_name,
        parameter=_fitted_parameter(claim),
        generated=claim.generated,
    )


def _fitted_parameter(claim: VariantClaim) -> float | None:
    """The number that was fitted; of several the first."""
    return None if claim.generated is None else next(iter(claim.generated.numbers.values()), None)


def _explained_share(outcome: ClaimOutcome) -> float | None:
    """What it explains of the squared error; where NaN and infinities are all of the error, whether they are at its places."""
    if outcome.predicts and outcome.line.error2 == 0:
        return 0.0 if outcome.mismatched else 1.0
    return outcome.line.share if outcome.predicts else None


def is_convincing(outcome: ClaimOutcome) -> bool:
    """Whether a claim predicts something and is accepted on its own."""
    return outcome.predicts and is_accepted(outcome, np.zeros(0))


def is_hopeful(outcome: ClaimOutcome) -> bool:
    """Whether a higher floor could make a claim acceptable."""
    return outcome.mismatched == 0 and is_promising(outcome.line, outcome.floor2)


def is_promising(line: RegressionLine, floor2: float) -> bool:
    """The same of a line and the floor's squared norm."""
    return line.share > _HOPEFUL or line.left2 <= 100 * floor2


def first_of_each_hypothesis(outcomes: Sequence[ClaimOutcome]) -> list[ClaimOutcome]:
    """The first outcome of each hypothesis."""
    found: dict[tuple[str, int], ClaimOutcome] = {}
    for outcome in outcomes:
        found.setdefault((outcome.claim.hypothesis.name, outcome.claim.position), outcome)
    return list(found.values())
