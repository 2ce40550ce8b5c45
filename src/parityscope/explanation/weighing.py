"""One variant held against what the candidate gave: run, regressed, compared with the floor.

A rounded output is judged before its rounding: numbers v that are known to within the floor give any of the rounded numbers
between round(v - width) and round(v + width), and an element is left over only by how far it lies outside. So
a result that fell to the other side of a tie, because the candidate added in another order, is no discrepancy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.explanation.floor import noise_floor
from parityscope.explanation.records import Explained
from parityscope.explanation.regression import MARGIN, above_floor, discovery_cutoff, regress
from parityscope.explanation.running import NotAccumulatedError, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Hypothesis, Rounding, Variant
    from parityscope.explanation.regression import Line
    from parityscope.explanation.running import Runner

__all__ = ["Claim", "Outcome", "Scene", "accepted", "in_size", "predict", "settle", "weigh"]

SHARE = 0.99  # of the squared error: the residual regression's bound (numerics notes: wrong recipes reach 0.68)
SHARE_ROUNDED = 0.9  # with a rounding of the output, whose ties fall differently in another order of summation
SIZE = 2.0  # of the predicted size, in each channel: the margin of the grades (docs/numerics.md)
PEAK = 4.0  # of the largest predicted element: twice the margin, for the tail of a tensor of millions
_SLOPE = 0.01  # a slope wrong by a hundredth costs 1e-4 of the share: a hundredth of what SHARE allows
_CONFIDENCE = 3.29  # standard errors: two-sided 99.9 %
_TIE = 3.0  # standard deviations, each with the floor's margin, that a number may be off before its rounding
_FAR = 8.0  # margins: one element of 1e15 is there by chance
_FLIP = 0.8  # E|x| of a standard normal: noise s moves a rounded number by one unit d with probability 0.8 s / d
_STEP = 1e-3  # of the span, for the derivative by a fitted parameter
_TRIMMED = 0.75  # of the elements: a fault in fewer than a quarter does not decide which arithmetic is under it


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A region on the candidate's inputs: its graph, c and f(c_in) (float64, equal shapes), and where channels lie."""

    model: ir.Model
    feeds: Mapping[str, np.ndarray]
    runner: Runner
    candidate: np.ndarray
    replayed: np.ndarray
    axis: int | None
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A variant of a hypothesis about one node (its position in the graph; -1: the region), on top of an arithmetic."""

    hypothesis: Hypothesis
    variant: Variant
    position: int = -1
    parameter: float | None = None
    base: Variant | None = None
    base_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What a claim showed: the line, the rest by channel, and the size of its rest without the worst quarter.

    `energy` and `peak` are the size of what is predicted, `left_energy` and `left_peak` of what is left, by channel.
    `ratios` are the channels' root mean square z; `chances` their p-values, and the whole tensor's behind them.
    """

    claim: Claim
    line: Line
    ratios: np.ndarray
    chances: np.ndarray
    elements_above: int
    mismatched: int
    settled: int
    trimmed: float
    floor2: float
    energy: np.ndarray
    peak: float
    left_energy: np.ndarray
    left_peak: float
    predicted: np.ndarray
    sigma: np.ndarray

    @property
    def predicts(self) -> bool:
        """Whether the claim predicts anything else than f(c_in)."""
        return self.line.predicted2 > 0 or self.settled > 0


def rewritten(scene: Scene, claim: Claim) -> tuple[ir.Model, Variant]:
    """The graph and the arithmetic that a claim stands for."""
    variant = claim.variant if claim.base is None else replace(claim.base, words=claim.variant.words)
    base = None if claim.base is None else claim.base.rewrite
    if claim.variant.rewrite is None and base is None:
        return scene.model, variant
    model = scene.model.clone()
    if claim.variant.rewrite is not None:
        claim.variant.rewrite(model, model.graph[claim.position], claim.parameter or 0.0)
    if base is not None:
        base(model, model.graph[-1], 0.0)
    model.graph.sort()
    return model, variant


def predict(scene: Scene, claim: Claim) -> np.ndarray | None:
    """The region's output under a claim, in its own dtype, before the rounding of the output; None if it cannot be had.

    Raises:
        ParityError: ONNX Runtime refuses the rewritten graph.
    """
    model, variant = rewritten(scene, claim)
    try:
        # Overflow is what some hypotheses predict.
        with np.errstate(over="ignore", invalid="ignore"):
            known = evaluate(model, scene.feeds, scene.runner, variant)
    except NotAccumulatedError:
        return None
    array = known[str(model.graph.outputs[0].name)]
    return array if array.shape == scene.candidate.shape else None


def stored(claim: Claim, array: np.ndarray) -> np.ndarray:
    """What is stored of the output: rounded where the claim says so; float64."""
    rounding = _output(claim)
    if rounding is None or array.dtype.kind != "f":
        return np.asarray(array, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(rounding.apply(array), np.float64)


def weigh(scene: Scene, claim: Claim, sigma: np.ndarray) -> Outcome | None:
    """Runs a claim and holds it against the candidate with a floor known already; None if it cannot be run.

    Raises:
        ParityError: ONNX Runtime refuses the rewritten graph.
    """
    exact = predict(scene, claim)
    if exact is None:
        return None
    predicted = stored(claim, exact)
    candidate, replayed = scene.candidate, scene.replayed
    same = (candidate == predicted) | (np.isnan(candidate) & np.isnan(predicted))
    finite = np.isfinite(candidate) & np.isfinite(predicted)
    both = finite & np.isfinite(replayed)
    line = regress(candidate[both] - replayed[both], predicted[both] - replayed[both])
    left = np.where(finite, _left(scene, claim, exact, predicted, sigma), 0.0)
    ratios, chances = above_floor(left, sigma, scene.axis)
    if ratios.size > 1:
        # The tensor as one more channel: what is a little above the floor everywhere is no single channel's discovery.
        chances = np.append(chances, above_floor(left, sigma, None)[1])
    rest = np.square(np.where(finite, candidate, 0.0) - np.where(finite, predicted, 0.0)).ravel()
    kept = max(1, int(rest.size * _TRIMMED))
    effect = np.where(both, predicted, 0.0) - np.where(both, replayed, 0.0)
    energy, peak = _size(effect, scene.axis)
    left_energy, left_peak = _size(np.where(finite, candidate, 0.0) - np.where(finite, predicted, 0.0), scene.axis)
    return Outcome(
        claim=claim,
        line=line,
        ratios=ratios,
        chances=chances,
        elements_above=int((np.abs(left) > _FAR * MARGIN * sigma).sum()),
        mismatched=int((~finite & ~same).sum()),
        settled=int((~finite & same & ~_alike(candidate, replayed)).sum()),
        trimmed=float(np.partition(rest, kept - 1)[:kept].mean()) if rest.size else 0.0,
        floor2=float(np.square(sigma[both]).sum()),
        energy=energy,
        peak=peak,
        left_energy=left_energy,
        left_peak=left_peak,
        predicted=predicted,
        sigma=sigma,
    )


def _size(error: np.ndarray, axis: int | None) -> tuple[np.ndarray, float]:
    """The squared norm of each channel, and the largest magnitude."""
    others = None if axis is None else tuple(each for each in range(error.ndim) if each != axis)
    return np.atleast_1d(np.square(error).sum(axis=others)), float(np.abs(error).max(initial=0.0))


def settle(scene: Scene, outcome: Outcome) -> Outcome:
    """The same claim held against the floor of its own evaluation: values that f(c_in) hides have noise too."""
    model, variant = rewritten(scene, outcome.claim)
    generator = np.random.default_rng(scene.seed)
    sigma = noise_floor(model, scene.feeds, scene.runner, variant, generator, scene.axis)
    if variant.between is not None and variant.output is not None:
        # A rounding between flips now and then by a whole unit d: variance 0.8 s d, with d = 2 u |value|.
        flips = (
            _FLIP
            * sigma
            * 2.0
            * variant.output.unit
            * np.abs(np.where(np.isfinite(outcome.predicted), outcome.predicted, 0))
        )
        sigma = np.sqrt(np.square(sigma) + flips)
    if outcome.claim.parameter is not None:
        sigma = np.sqrt(np.square(sigma) + np.square(_uncertainty(scene, outcome)))
    return weigh(scene, outcome.claim, sigma) or outcome


def _uncertainty(scene: Scene, outcome: Outcome) -> np.ndarray:
    """What the standard error of a fitted parameter does to each element: float64.

    The parameter was fitted to rounded numbers, so it is known to |r - p| / (sqrt(n - 1) |df/dparameter|) only.
    """
    claim, span = outcome.claim, outcome.claim.variant.span
    nothing = np.zeros(scene.candidate.shape)
    if span is None or claim.parameter is None or span[0] == span[1]:
        return nothing
    step = _STEP * (span[1] - span[0])
    below, above = (predict(scene, replace(claim, parameter=claim.parameter + sign * step)) for sign in (-1.0, 1.0))
    if below is None or above is None:
        return nothing
    slope = (np.asarray(above, np.float64) - np.asarray(below, np.float64)) / (2.0 * step)
    slope[~np.isfinite(slope)] = 0.0
    norm2 = float(np.square(slope).sum())
    return np.abs(slope) * math.sqrt(outcome.line.left2 / max(1, slope.size - 1) / norm2) if norm2 > 0 else nothing


def accepted(outcome: Outcome, others: np.ndarray) -> bool:
    """Slope near one, share above the bound, no channel above the floor, and the same non-finite elements.

    A claim that predicts nothing is accepted where nothing is above the floor. The noise of the floor itself is not
    asked to be explained.
    """
    if outcome.mismatched or _discoveries(outcome, others).any():
        return False
    line = outcome.line
    if not outcome.predicts:
        return True
    if line.predicted2 == 0:
        return line.left2 <= MARGIN**2 * outcome.floor2
    bound = SHARE if _output(outcome.claim) is None else SHARE_ROUNDED
    if line.left2 > (1.0 - bound) * line.error2 + outcome.floor2:
        return False
    noise = math.sqrt(outcome.floor2 / line.predicted2)
    return abs(line.slope - 1.0) <= _CONFIDENCE * line.slope_error + _SLOPE + noise


def in_size(outcome: Outcome, known: Sequence[Outcome]) -> bool:
    """Whether what is left is no larger than the roundings of one of `known` arithmetics, in any channel or element.

    Of several nodes that one engine kernel or several may run, the points where it rounds are not known, and then only
    the size of the rounding can be predicted.
    """
    return not outcome.mismatched and any(
        bool((outcome.left_energy <= SIZE**2 * each.energy + outcome.floor2).all())
        and outcome.left_peak <= PEAK * each.peak
        for each in known
    )


def _discoveries(outcome: Outcome, others: np.ndarray) -> np.ndarray:
    """Which of the channels, and last the whole tensor, are above the floor, among these and `others` (p-values)."""
    return outcome.chances <= discovery_cutoff(np.concatenate([outcome.chances, others]))


def summary(outcome: Outcome, others: np.ndarray, node: str) -> Explained:
    """The record of an outcome."""
    claim = outcome.claim
    words = claim.variant.words
    return Explained(
        hypothesis=claim.hypothesis.name,
        title=claim.hypothesis.title,
        family=claim.hypothesis.family,
        words=words if claim.parameter is None else words.format(parameter=claim.parameter),
        share=_share(outcome),
        slope=outcome.line.slope,
        slope_error=outcome.line.slope_error,
        worst_z=float(outcome.ratios.max(initial=0.0)),
        channels=outcome.ratios.size,
        channels_above=int(_discoveries(outcome, others)[: outcome.ratios.size].sum()),
        elements_above=outcome.elements_above,
        mismatched=outcome.mismatched,
        accepted=accepted(outcome, others),
        node=node,
        on_top_of=claim.base_name,
        parameter=claim.parameter,
    )


def _share(outcome: Outcome) -> float | None:
    return outcome.line.share if outcome.predicts else None


def _output(claim: Claim) -> Rounding | None:
    return claim.variant.output if claim.base is None else claim.base.output


def _left(scene: Scene, claim: Claim, exact: np.ndarray, predicted: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """The candidate minus the nearest number that the claim allows: float64."""
    rounding = _output(claim)
    if rounding is None or exact.dtype.kind != "f":
        with np.errstate(invalid="ignore"):
            return np.asarray(scene.candidate - predicted)
    width = _TIE * MARGIN * sigma
    low, high = (
        np.asarray(rounding.apply((exact + sign * width).astype(exact.dtype)), np.float64) for sign in (-1.0, 1.0)
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(scene.candidate - np.clip(scene.candidate, np.fmin(low, high), np.fmax(low, high)))


def _alike(candidate: np.ndarray, replayed: np.ndarray) -> np.ndarray:
    return np.asarray((candidate == replayed) | (np.isnan(candidate) & np.isnan(replayed)))
