"""Other functions than the model says, on top of an arithmetic: tried where no arithmetic alone is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.hypotheses import hypotheses
from parityscope.errors import ParityError
from parityscope.explanation.claims import Claim, Outcome, Scene, predict, stored
from parityscope.explanation.fitting import FITTING, fitted
from parityscope.explanation.judging import SHARE, SHARE_ROUNDED, hopeful
from parityscope.explanation.regression import regress
from parityscope.explanation.weighed import context_of
from parityscope.explanation.weighing import settle, weigh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.arithmetic.hypotheses import Variant
    from parityscope.explanation.weighed import Weighed

__all__ = ["other_functions", "substantial"]

_FINALISTS = 4  # functions that are tried on top of every arithmetic
_BASES = 2  # arithmetics that the function is tried on top of, besides FP32 and the declared one
_SUBSTANTIAL = 0.5  # of what the arithmetic leaves: a function must explain at least this
_FIRST_ROUND = 0.6  # of what is left of the budget; the rest is for the finalists


def other_functions(weighed: Weighed, declared: str) -> list[Outcome]:
    """All of them on top of the likeliest arithmetic, the best ones, with what else is said like them, on the others too.

    On top of a wrong arithmetic a wrong number of a hypothesis may do a little better than the right one. What the budget
    does not allow is counted there, fitted numbers first.
    """
    bases = _bases(weighed, declared)
    claims = sorted(_claims(weighed.scene), key=lambda each: each.variant.span is not None)
    kept = (1.0 - _FIRST_ROUND) * weighed.budget.left
    weighed.budget.left -= kept
    first = [_with_base(claim, bases[0]) for claim in claims]
    found = [outcome for claim in first if (outcome := _tried(weighed, claim)) is not None]
    weighed.budget.left += kept
    found.sort(key=lambda each: (each.mismatched, -each.line.share))
    finalists = found[:_FINALISTS]
    settled = [_settled(weighed, each) for each in finalists]
    alike = {_kind(each.claim) for each in finalists}
    for base in bases[1:]:
        tried = [_tried(weighed, _with_base(claim, base)) for claim in claims if _kind(claim) in alike]
        again = sorted(
            (each for each in tried if each is not None), key=lambda each: (each.mismatched, -each.line.share)
        )
        settled.extend(_settled(weighed, each) for each in again[:_FINALISTS])
    return [each for each in settled if each.significant]


def _kind(claim: Claim) -> tuple[str, int]:
    return claim.hypothesis.name, claim.position


def substantial(scene: Scene, outcome: Outcome) -> bool:
    """Whether the function explains what the arithmetic under it leaves, and not only what that explains anyway."""
    claim = outcome.claim
    if claim.base is None:
        return True
    alone = predict(scene, replace(claim, variant=claim.base, base=None))
    if alone is None:
        return False
    base = stored(replace(claim, variant=claim.base, base=None), alone)
    finite = np.isfinite(base) & np.isfinite(scene.candidate) & np.isfinite(outcome.predicted)
    if not finite.all():
        return True
    line = regress(scene.candidate - base, outcome.predicted - base)
    bound = SHARE if claim.base.output is None else SHARE_ROUNDED
    return line.left2 <= (1.0 - bound) * line.error2 + outcome.floor2 or line.share >= _SUBSTANTIAL


def _settled(weighed: Weighed, outcome: Outcome) -> Outcome:
    title = f"{outcome.claim.hypothesis.title}, its own noise floor"
    fits = hopeful(outcome) and weighed.budget.pay(weighed.price.settling, title)
    return settle(weighed.scene, outcome) if fits else outcome


def _bases(weighed: Weighed, declared: str) -> list[tuple[str, Variant | None]]:
    """Arithmetics to try another function on top of: the best for most of the elements first, and FP32 always."""
    # One that overflows where the candidate does not is out of the question, however near it comes elsewhere.
    ranked = sorted(
        (weighed.nothing, *weighed.outcomes),
        key=lambda each: (each.mismatched, each.trimmed, each is not weighed.nothing),
    )
    wanted = {f"{declared}_inputs_output", f"{declared}_nearest"}
    told = [
        each for each in weighed.outcomes if each.claim.hypothesis.name in wanted and not each.claim.variant.between
    ]
    chosen: list[Outcome] = []
    for outcome in (*ranked[:_BASES], *told, weighed.nothing):
        if not any(outcome is each for each in chosen):
            chosen.append(outcome)
    return [
        ("", None) if each is weighed.nothing else (each.claim.hypothesis.name, each.claim.variant) for each in chosen
    ]


def _claims(scene: Scene) -> Iterator[Claim]:
    context = context_of(scene)
    known = [each for each in hypotheses().values() if each.family == "semantic"]
    for position, node in enumerate(scene.model.graph):
        for hypothesis in known:
            if hypothesis.applies(node, scene.model.graph):
                for variant in hypothesis.variants(node, context):
                    yield Claim(hypothesis=hypothesis, variant=variant, position=position)


def _with_base(claim: Claim, base: tuple[str, Variant | None]) -> Claim:
    return replace(claim, base_name=base[0], base=base[1])


def _tried(weighed: Weighed, claim: Claim) -> Outcome | None:
    """The outcome of a claim, its parameter fitted first; None where it is refused by ONNX Runtime or the budget."""
    scene = weighed.scene
    if not weighed.budget.pay(_cost(weighed, claim), claim.hypothesis.title):
        return None
    try:
        if claim.variant.span is not None and claim.parameter is None:
            claim = replace(claim, parameter=fitted(scene, claim, claim.variant.span))
        outcome = weigh(scene, claim, weighed.sigma)
    except ParityError:
        # Not every mode of an operator goes with every other attribute; what cannot be run was not computed either.
        return None
    return outcome if outcome is not None and outcome.predicts else None


def _cost(weighed: Weighed, claim: Claim) -> float:
    prices = weighed.price
    stepwise = claim.base is not None and claim.base.accumulate is not None
    once = prices.accumulation if stepwise else prices.evaluation
    return once * (1 + (FITTING if claim.variant.span is not None else 0)) + prices.weighing
