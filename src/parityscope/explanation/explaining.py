"""The search for what explains a region: arithmetic first, another function on top of an arithmetic if none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.recurrent import is_recurrent
from parityscope.explanation.evidence import indistinguishable, left_over, ordered
from parityscope.explanation.functions import other_functions, substantial
from parityscope.explanation.judging import SHARE_ROUNDED, accepted, different, in_size, simplest, summary
from parityscope.explanation.magnitude import expected_by_size
from parityscope.explanation.records import Explained, Explanation, Options
from parityscope.explanation.running import Runner
from parityscope.explanation.weighed import Weighed, weigh_arithmetic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.explanation.claims import Outcome
    from parityscope.records import Skip

__all__ = ["decide", "explain"]

_SHOWN = 3  # rejected hypotheses that are reported


def explain(
    region: ir.Model,
    feeds: Mapping[str, np.ndarray],
    candidate: np.ndarray,
    options: Options | None = None,
    runner: Runner | None = None,
) -> Explanation:
    """What explains the error that the candidate introduced in one region.

    Args:
        region: The reference's nodes of it as a graph with one output (`suspects.region_model` makes one).
        feeds: The candidate's own values of the graph's inputs, in the dtypes that the graph declares.
        candidate: What the candidate gave, of the output's shape.
        options: What is known of the candidate.
        runner: Sessions to use again.

    Raises:
        ParityError: ONNX Runtime refuses the region itself.
    """
    options = options or Options()
    found = weigh_arithmetic(region, feeds, candidate, options, runner or Runner())
    if isinstance(found, Explanation):
        return found
    return decide(found, np.zeros(0), options)


def decide(weighed: Weighed, others: np.ndarray, options: Options) -> Explanation:
    """The verdict on a region, with `others` the p-values of other regions' channels, among which discoveries are made."""
    if accepted(weighed.nothing, others):
        by = (summary(weighed.scene, weighed.nothing, others),)
        return Explanation(
            tensor=weighed.tensor,
            status="within floor",
            by=by,
            elements=weighed.scene.candidate.size,
            skipped=weighed.skipped,
        )
    tried = [each for each in weighed.outcomes if each.predicts]
    held = [each for each in tried if accepted(each, others)]
    if held:
        return _explained(weighed, held, tried, others, options, weighed.skipped)
    return _expected(weighed, others, options) or _another(weighed, tried, others, options)


def _explained(
    weighed: Weighed,
    held: Sequence[Outcome],
    tried: Sequence[Outcome],
    others: np.ndarray,
    options: Options,
    skipped: Sequence[Skip],
) -> Explanation:
    scene = weighed.scene
    named, evidence = ordered(scene, indistinguishable(simplest(held), held), options.declared)
    return Explanation(
        tensor=weighed.tensor,
        status="explained",
        by=tuple(summary(scene, each, others) for each in different(named)),
        rejected=_nearest(weighed, tried, others),
        evidence=evidence,
        elements=scene.candidate.size,
        skipped=tuple(skipped),
    )


def _expected(weighed: Weighed, others: np.ndarray, options: Options) -> Explanation | None:
    """By size: inner roundings of the declared arithmetic, or an accumulator of it in an order that is not known."""
    known = _declared(weighed, options.declared)
    by: tuple[Explained, ...] = ()
    if in_size(weighed.nothing, known, _draws(weighed)):
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
        rejected=tuple(summary(weighed.scene, each, others) for each in different(nearest)[:_SHOWN]),
        evidence=(evidence,),
        elements=weighed.scene.candidate.size,
        skipped=weighed.skipped,
    )


def _another(weighed: Weighed, tried: Sequence[Outcome], others: np.ndarray, options: Options) -> Explanation:
    """Another function on top of an arithmetic, or nothing that is known."""
    scene = weighed.scene
    known = _declared(weighed, options.declared)
    before = len(weighed.budget.skips())
    functions = other_functions(weighed, options.declared)
    skipped = (*weighed.skipped, *weighed.budget.skips()[before:])
    held = [each for each in functions if accepted(each, others) and substantial(scene, each)]
    draws = _draws(weighed)
    held = held or [each for each in functions if each.line.share > SHARE_ROUNDED and in_size(each, known, draws)]
    if held:
        return _explained(weighed, held, [*tried, *functions], others, options, skipped)
    return Explanation(
        tensor=weighed.tensor,
        status="unexplained",
        rejected=_nearest(weighed, [*tried, *functions], others),
        left=left_over(scene),
        elements=scene.candidate.size,
        skipped=skipped,
    )


def _nearest(weighed: Weighed, tried: Sequence[Outcome], others: np.ndarray) -> tuple[Explained, ...]:
    """The best of what was rejected."""
    rejected = [each for each in tried if not accepted(each, others)]
    rejected.sort(key=lambda each: (each.mismatched, -each.line.share))
    return tuple(summary(weighed.scene, each, others) for each in different(rejected)[:_SHOWN])


def _draws(weighed: Weighed) -> float:
    """The independent elements of a channel; 1 behind a recurrent operator, whose errors are handed from step to step."""
    if any(is_recurrent(node) for node in weighed.scene.model.graph):
        return 1.0
    return weighed.scene.candidate.size / max(1, weighed.nothing.left_energy.size)


def _declared(weighed: Weighed, declared: str) -> list[Outcome]:
    """The outcomes of the declared arithmetic, where the region has inner tensors that nobody saw."""
    nodes = [node for node in weighed.scene.model.graph if node.op_type != "Constant"]
    inner = len(nodes) > 1 or any(is_recurrent(node) for node in nodes)
    return [each for each in weighed.outcomes if inner and declared and each.claim.hypothesis.name.startswith(declared)]
