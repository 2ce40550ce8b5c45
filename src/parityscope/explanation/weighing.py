"""One variant held against what the candidate gave: run, regressed, compared with the floor.

A rounded output is judged before its rounding: numbers v that are known to within the floor give any of the rounded numbers
between round(v - width) and round(v + width), and an element is left over only by how far it lies outside. So
a result that fell to the other side of a tie, because the candidate added in another order, is no discrepancy. Elements so
near to a tie say nothing about the rounding, and where they are few, slope and share are those of the others.
"""

from __future__ import annotations

import numpy as np

from parityscope.explanation.claims import (
    ClaimOutcome,
    RegionScene,
    VariantClaim,
    output_of,
    predict_output,
    rewrite_region,
    store_output,
)
from parityscope.explanation.floor import noise_floor
from parityscope.explanation.judging import is_promising
from parityscope.explanation.regression import MARGIN, above_floor, regress_through_origin

_TIE = 3.0  # standard deviations, each with the floor's margin, that a number may be off before its rounding
_FAR = 8.0  # margins: one element of 1e15 is there by chance
_FLIP = 0.8  # E|x| of a standard normal: noise s moves a rounded number by one unit d with probability 0.8 s / d
_FEW = 4096  # elements, chosen: of so few one that fell to the other side of a tie may be a fifth of all error
_UNDECIDED = 0.1  # of the elements may be near a tie for the others to speak for all. Chosen.
_TRIMMED = 0.75  # of the elements: a fault in fewer than a quarter does not decide which arithmetic is under it


def weigh_claim(scene: RegionScene, claim: VariantClaim, sigma: np.ndarray) -> ClaimOutcome | None:
    """Runs a claim and holds it against the candidate with a floor known already; None if it cannot be run.

    Raises:
        ParityError: ONNX Runtime refuses the rewritten graph.
    """
    exact = predict_output(scene, claim)
    if exact is None:
        return None
    predicted = store_output(claim, exact)
    candidate, replayed = scene.candidate, scene.replayed
    same = (candidate == predicted) | (np.isnan(candidate) & np.isnan(predicted))
    finite = np.isfinite(candidate) & np.isfinite(predicted)
    both = finite & np.isfinite(replayed)
    line = regress_through_origin(
        _elements_of(candidate, both) - _elements_of(replayed, both),
        _elements_of(predicted, both) - _elements_of(replayed, both),
    )
    floor2 = float(np.square(_elements_of(sigma, both)).sum())
    # Ties cannot save what explains too little; looking for them is what costs most.
    ends = _rounding_ends(claim, exact, sigma) if is_promising(line, floor2) or candidate.size <= _FEW else None
    if ends is None:
        left = np.where(finite, candidate, 0.0) - np.where(finite, predicted, 0.0)
    else:
        with np.errstate(invalid="ignore"):
            left = np.where(finite, candidate - np.clip(candidate, *ends), 0.0)
        decided = both & (ends[0] == ends[1])
        if decided.sum() >= (1.0 - _UNDECIDED) * both.sum():
            line = regress_through_origin(
                _elements_of(candidate, decided) - _elements_of(replayed, decided),
                _elements_of(predicted, decided) - _elements_of(replayed, decided),
            )
    ratios, chances = above_floor(left, sigma, scene.axis)
    if ratios.size > 1:
        # The tensor as one more channel: what is a little above the floor everywhere is no single channel's discovery.
        chances = np.append(chances, above_floor(left, sigma, None)[1])
    rest = np.square(np.where(finite, candidate, 0.0) - np.where(finite, predicted, 0.0)).ravel()
    kept = max(1, int(rest.size * _TRIMMED))
    effect = np.where(both, predicted, 0.0) - np.where(both, replayed, 0.0)
    energy, peak = _energy_and_peak(effect, scene.axis)
    left_energy, left_peak = _energy_and_peak(
        np.where(finite, candidate, 0.0) - np.where(finite, predicted, 0.0), scene.axis
    )
    return ClaimOutcome(
        claim=claim,
        line=line,
        ratios=ratios,
        chances=chances,
        elements_above=int((np.abs(left) > _FAR * MARGIN * sigma).sum()),
        mismatched=int((~finite & ~same).sum()),
        settled=int((~finite & same & ~_are_alike(candidate, replayed)).sum()),
        trimmed=float(np.partition(rest, kept - 1)[:kept].mean()) if rest.size else 0.0,
        floor2=floor2,
        energy=energy,
        peak=peak,
        left_energy=left_energy,
        left_peak=left_peak,
        predicted=predicted,
        sigma=sigma,
    )


def _elements_of(array: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return array.ravel() if wanted.all() else array[wanted]


def _energy_and_peak(error: np.ndarray, axis: int | None) -> tuple[np.ndarray, float]:
    """The squared norm of each channel, and the largest magnitude."""
    others = None if axis is None else tuple(each for each in range(error.ndim) if each != axis)
    return np.atleast_1d(np.square(error).sum(axis=others)), float(np.abs(error).max(initial=0.0))


def settle_outcome(scene: RegionScene, outcome: ClaimOutcome) -> ClaimOutcome:
    """The same claim held against the floor of its own evaluation: values that f(c_in) hides have noise too."""
    model, variant = rewrite_region(scene, outcome.claim)
    generator = np.random.default_rng(scene.seed)
    sigma = noise_floor(model, scene.feeds, scene.sessions, variant, generator, scene.axis)
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
    return weigh_claim(scene, outcome.claim, sigma) or outcome


def _rounding_ends(claim: VariantClaim, exact: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The least and the largest number that the output's rounding makes of each element; None without a rounding."""
    if output_of(claim) is None or exact.dtype.kind != "f":
        return None
    width = _TIE * MARGIN * sigma
    wide = np.result_type(exact.dtype, np.float32)  # halves of them too: what is between two is not of their type
    low, high = (store_output(claim, (exact + sign * width).astype(wide)) for sign in (-1.0, 1.0))
    return np.fmin(low, high), np.fmax(low, high)


def _are_alike(candidate: np.ndarray, replayed: np.ndarray) -> np.ndarray:
    return np.asarray((candidate == replayed) | (np.isnan(candidate) & np.isnan(replayed)))
