"""The search for what explains a region: arithmetic first, another function on top of an arithmetic if none does.

Arithmetics whose error has a known size and an unknown direction: accepted by magnitude, where they are declared.

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
from parityscope.arithmetic.recurrent import is_recurrent
from parityscope.evaluation.sessions import Sessions
from parityscope.expectation.error_model import ROUNDING
from parityscope.explanation.claims import predict_output
from parityscope.explanation.evidence import indistinguishable_outcomes, left_over, order_by_likelihood
from parityscope.explanation.floor import noise_floor
from parityscope.explanation.generating import (
    NEARLY_ALL,
    Generated,
    budget_of_searches,
    context_of_region,
    generate_hypotheses,
)
from parityscope.explanation.judging import (
    PEAK,
    SIZE,
    first_of_each_hypothesis,
    is_accepted,
    is_in_size,
    summarize_outcome,
)
from parityscope.explanation.records import Explained, Explanation, ExplanationOptions
from parityscope.explanation.regression import above_floor, discovery_cutoff
from parityscope.explanation.weighed import Weighed, usual_arithmetics, weigh_arithmetic
from parityscope.hypotheses.power import ARITHMETIC, MOST_NUMBERS, SURE_BITS, KindTally
from parityscope.hypotheses.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.explanation.claims import ClaimOutcome, VariantClaim
    from parityscope.explanation.generating import Surroundings
    from parityscope.explanation.weighed import Weighed
    from parityscope.hypotheses.arithmetic import Variant
    from parityscope.hypotheses.worker import EditCandidate
    from parityscope.records import RuledOut, Skip

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


_TOLD = 0.9  # of the squared error, chosen: a curve that describes less is not drawn
_SHOWN = 3  # rejected hypotheses that are reported
_BASES = 2  # arithmetics that another function is tried on top of, besides FP32 and the declared one


def explain_region(
    region: ir.Model,
    feeds: Mapping[str, np.ndarray],
    candidate: np.ndarray,
    options: ExplanationOptions | None = None,
    sessions: Sessions | None = None,
) -> Explanation:
    """What explains the error that the candidate introduced in one region.

    Args:
        region: The reference's nodes of it as a graph with one output (`suspects.region_model` makes one).
        feeds: The candidate's own values of the graph's inputs, in the dtypes that the graph declares.
        candidate: What the candidate gave, of the output's shape.
        options: What is known of the candidate.
        sessions: What was opened before, to be used again.

    Raises:
        ParityError: ONNX Runtime refuses the region itself.
    """
    options = options or ExplanationOptions()
    found = weigh_arithmetic(region, feeds, candidate, options, sessions or Sessions(threads=1))
    if isinstance(found, Explanation):
        return found
    return decide_explanation(found, np.zeros(0), options)


def decide_explanation(
    weighed: Weighed, others: np.ndarray, options: ExplanationOptions, around: Surroundings | None = None
) -> Explanation:
    """The verdict on a region, with `others` the p-values of other regions' channels, among which discoveries are made.

    `around` is where it lies, if that is known: what hypotheses may be made of.
    """
    if is_accepted(weighed.nothing, others):
        by = (summarize_outcome(weighed.scene, weighed.nothing, others),)
        return Explanation(
            tensor=weighed.tensor,
            status="within floor",
            by=by,
            elements=weighed.scene.candidate.size,
            skipped=weighed.skipped,
        )
    tried = [each for each in weighed.outcomes if each.predicts]
    held = [each for each in tried if is_accepted(each, others)]
    if held:
        return _explain_by_arithmetic(weighed, held, tried, others, options, weighed.skipped)
    return _explain_by_size(weighed, others, options) or _explain_by_function(weighed, tried, others, options, around)


def _explain_by_arithmetic(
    weighed: Weighed,
    held: Sequence[ClaimOutcome],
    tried: Sequence[ClaimOutcome],
    others: np.ndarray,
    options: ExplanationOptions,
    skipped: Sequence[Skip],
) -> Explanation:
    scene = weighed.scene
    named, evidence = order_by_likelihood(
        scene, indistinguishable_outcomes(max(held, key=lambda each: each.line.share), held), options.declared
    )
    return Explanation(
        tensor=weighed.tensor,
        status="explained",
        by=tuple(summarize_outcome(scene, each, others) for each in first_of_each_hypothesis(named)),
        rejected=_nearest_rejected(weighed, tried, others),
        evidence=evidence,
        elements=scene.candidate.size,
        skipped=tuple(skipped),
    )


def _explain_by_size(weighed: Weighed, others: np.ndarray, options: ExplanationOptions) -> Explanation | None:
    """By size: inner roundings of the declared arithmetic, or an accumulator of it in an order that is not known."""
    known = _declared_outcomes(weighed, options.declared)
    by: tuple[Explained, ...] = ()
    if is_in_size(weighed.nothing, known, _independent_draws(weighed)):
        evidence = f"no channel and no element is off by more than the roundings of {options.declared} explain"
    else:
        claim = expected_by_size(weighed, others, options.declared)
        if claim is None:
            return None
        by = (claim,)
        evidence = f"the candidate computes in {options.declared}; the order of its sums is not known, their size is"
    nearest = sorted(known or weighed.outcomes, key=lambda each: each.line.left2)
    return Explanation(
        tensor=weighed.tensor,
        status="expected",
        by=by,
        rejected=tuple(
            summarize_outcome(weighed.scene, each, others) for each in first_of_each_hypothesis(nearest)[:_SHOWN]
        ),
        evidence=(evidence,),
        elements=weighed.scene.candidate.size,
        skipped=weighed.skipped,
    )


def _explain_by_function(
    weighed: Weighed,
    tried: Sequence[ClaimOutcome],
    others: np.ndarray,
    options: ExplanationOptions,
    around: Surroundings | None,
) -> Explanation:
    """Another function on top of an arithmetic, or nothing that is known."""
    scene = weighed.scene
    generated = _search_generated(weighed, options, around)
    skipped = (*weighed.skipped, *generated.skipped)
    if generated.held:
        best = generated.held[0]
        named = [each for each in generated.held if each in indistinguishable_outcomes(best, generated.held)]
        return Explanation(
            tensor=weighed.tensor,
            status="explained",
            by=tuple(summarize_outcome(scene, each, others) for each in named),
            rejected=_nearest_rejected(weighed, tried, others),
            evidence=(),
            elements=scene.candidate.size,
            skipped=skipped,
        )
    return Explanation(
        tensor=weighed.tensor,
        status="unexplained",
        rejected=_nearest_rejected(weighed, tried, others),
        nearest=tuple((one.words, one.share) for one in generated.nearest[:_SHOWN]),
        described=next((one for one in generated.nearest if one.curve is None and one.share >= NEARLY_ALL), None),
        curve=next((one for one in generated.nearest if one.curve is not None and _is_described(one)), None),
        ruled_out=(*_rule_out_arithmetic(weighed), *generated.ruled_out),
        left=left_over(scene),
        elements=scene.candidate.size,
        skipped=skipped,
    )


def _is_described(one: EditCandidate) -> bool:
    """Whether a curve says enough to be told: of what lies beyond its ends it knows nothing."""
    return one.share >= _TOLD and one.length <= -SURE_BITS


def _rule_out_arithmetic(weighed: Weighed) -> tuple[RuledOut, ...]:
    """The arithmetics that were tried in vain: which one it is takes as many bits as there are."""
    bits = math.log2(max(len(weighed.outcomes), 1))
    tally = KindTally(numbers=min(weighed.scene.candidate.size, MOST_NUMBERS))
    for each in weighed.outcomes:
        tally.note_tried(ARITHMETIC, bits)
        if not each.mismatched:
            tally.note_explained(ARITHMETIC, bits, each.line.share or 0.0, each.claim.variant.words)
    return tally.told()


def _search_generated(weighed: Weighed, options: ExplanationOptions, around: Surroundings | None) -> Generated:
    """What generated hypotheses say of a region, with what lies around it or, without that, of the region alone."""
    bases = likeliest_arithmetics(weighed, options.declared)
    if around is not None:
        return generate_hypotheses(
            weighed, bases, around.context(weighed), around.worker, around.held_elsewhere, around.budget
        )
    feeds, candidate = weighed.scene.feeds, weighed.scene.candidate.astype(weighed.dtype)
    context = context_of_region(weighed.region, feeds, candidate)
    return generate_hypotheses(weighed, bases, context, Worker(), [], budget_of_searches(options))


def likeliest_arithmetics(weighed: Weighed, declared: str) -> list[tuple[str, Variant | None, float]]:
    """Arithmetics to try another function on top of: FP32, the declared one, and the best for most of the elements.

    Each with the share of the squared error that it explains by itself.
    """
    # One that overflows where the candidate does not is out of the question, however near it comes elsewhere.
    ranked = sorted(
        (weighed.nothing, *weighed.outcomes),
        key=lambda each: (each.mismatched, each.trimmed, each is not weighed.nothing),
    )
    wanted = usual_arithmetics(declared)
    told = [
        each for each in weighed.outcomes if each.claim.hypothesis.name in wanted and not each.claim.variant.between
    ]
    # FP32 first: what is large beside a rounding is explained without it, in the fewest words.
    chosen: list[ClaimOutcome] = []
    for outcome in (weighed.nothing, *told, *ranked[:_BASES]):
        if not any(outcome is each for each in chosen):
            chosen.append(outcome)
    return [
        ("", None, 0.0)
        if each is weighed.nothing
        else (each.claim.hypothesis.name, each.claim.variant, each.line.share)
        for each in chosen
    ]


def _nearest_rejected(weighed: Weighed, tried: Sequence[ClaimOutcome], others: np.ndarray) -> tuple[Explained, ...]:
    """The best of what was rejected."""
    rejected = [each for each in tried if not is_accepted(each, others)]
    rejected.sort(key=lambda each: (each.mismatched, -each.line.share))
    return tuple(summarize_outcome(weighed.scene, each, others) for each in first_of_each_hypothesis(rejected)[:_SHOWN])


def _independent_draws(weighed: Weighed) -> float:
    """The independent elements of a channel; 1 behind a recurrent operator, whose errors are handed from step to step."""
    if any(is_recurrent(node) for node in weighed.scene.model.graph):
        return 1.0
    return weighed.scene.candidate.size / max(1, weighed.nothing.left_energy.size)


def _declared_outcomes(weighed: Weighed, declared: str) -> list[ClaimOutcome]:
    """The outcomes of the declared arithmetic, where the region has inner tensors that nobody saw."""
    nodes = [node for node in weighed.scene.model.graph if node.op_type != "Constant"]
    inner = len(nodes) > 1 or any(is_recurrent(node) for node in nodes)
    return [each for each in weighed.outcomes if inner and declared and each.claim.hypothesis.name.startswith(declared)]
