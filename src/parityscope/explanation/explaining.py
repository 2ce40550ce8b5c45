"""The search for what explains a region: arithmetic first, another function on top of an arithmetic if none does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.recurrent import is_recurrent
from parityscope.evaluation.sessions import Sessions
from parityscope.explanation.evidence import indistinguishable_outcomes, left_over, order_by_likelihood
from parityscope.explanation.generating import NEARLY_ALL, Generated, context_of_region, generate_hypotheses
from parityscope.explanation.judging import first_of_each_hypothesis, is_accepted, is_in_size, summarize_outcome
from parityscope.explanation.magnitude import expected_by_size
from parityscope.explanation.records import Explained, Explanation, ExplanationOptions
from parityscope.explanation.weighed import Weighed, weigh_arithmetic
from parityscope.hypotheses.power import ARITHMETIC, MOST_NUMBERS, SURE_BITS, KindTally
from parityscope.hypotheses.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.explanation.claims import ClaimOutcome
    from parityscope.explanation.generating import Surroundings
    from parityscope.hypotheses.arithmetic import Variant
    from parityscope.hypotheses.worker import EditCandidate
    from parityscope.records import RuledOut, Skip

__all__ = ["decide_explanation", "explain_region"]

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
            weighed, bases, around.context(weighed), around.worker, around.held_elsewhere, options.seconds
        )
    feeds, candidate = weighed.scene.feeds, weighed.scene.candidate.astype(weighed.dtype)
    context = context_of_region(weighed.region, feeds, candidate)
    return generate_hypotheses(weighed, bases, context, Worker(), [], options.seconds)


def likeliest_arithmetics(weighed: Weighed, declared: str) -> list[tuple[str, Variant | None, float]]:
    """Arithmetics to try another function on top of: FP32, the declared one, and the best for most of the elements.

    Each with the share of the squared error that it explains by itself.
    """
    # One that overflows where the candidate does not is out of the question, however near it comes elsewhere.
    ranked = sorted(
        (weighed.nothing, *weighed.outcomes),
        key=lambda each: (each.mismatched, each.trimmed, each is not weighed.nothing),
    )
    wanted = {f"{declared}_inputs_output", f"{declared}_nearest"}
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
