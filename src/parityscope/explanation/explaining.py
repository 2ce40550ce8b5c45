"""The search for what explains a region: arithmetic first, another function on top of an arithmetic if none does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.hypotheses import Context, Variant, hypotheses
from parityscope.case.graph import node_name
from parityscope.comparison import channel_axis
from parityscope.errors import ParityError
from parityscope.explanation.evidence import indistinguishable, left_over, ordered
from parityscope.explanation.floor import noise_floor
from parityscope.explanation.records import Explained, Explanation, Options
from parityscope.explanation.regression import regress
from parityscope.explanation.running import Runner, evaluate
from parityscope.explanation.weighing import (
    SHARE,
    SHARE_ROUNDED,
    Claim,
    Outcome,
    Scene,
    accepted,
    in_size,
    predict,
    settle,
    stored,
    summary,
    weigh,
)
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Hypothesis

__all__ = ["Weighed", "decide", "explain", "weigh_arithmetic"]

_HOPEFUL = 0.8  # of the share: below it no floor, however high, makes a claim acceptable; chosen
_FINALISTS = 4  # functions that are tried on top of every arithmetic
_BASES = 2  # arithmetics that the function is tried on top of, besides FP32 and the declared one
_SHOWN = 3  # rejected hypotheses that are reported
_STEPS = 32  # of the golden section, over an eighth of the span: 0.618^32 / 8 is 3e-8 of it
_GRID = 17  # points that the search starts from: behind a Relu a wrong sign has a minimum of its own
_DIGITS = (1, 2, 3, 4)  # people choose short numbers; the shortest that leaves no more than the best is reported
_AS_GOOD = 1e-6  # relative
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_SIMPLER = 5e-3  # of the share: what a fitted number must gain to be preferred to a claim without one
_SUBSTANTIAL = 0.5  # of what the arithmetic leaves: a function must explain at least this


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighed:
    """A region with every arithmetic hypothesis held against it."""

    tensor: str
    scene: Scene
    sigma: np.ndarray
    nothing: Outcome
    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skip, ...]

    @property
    def best(self) -> Outcome:
        """The arithmetic that leaves least above the floor."""
        return min((self.nothing, *self.outcomes), key=lambda each: (each.mismatched, each.line.left2))


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


def weigh_arithmetic(
    region: ir.Model, feeds: Mapping[str, np.ndarray], candidate: np.ndarray, options: Options, runner: Runner
) -> Weighed | Explanation:
    """Every arithmetic hypothesis held against a region; an explanation at once where there is nothing to weigh."""
    tensor = str(region.graph.outputs[0].name)
    problem = _untestable(region, candidate)
    if problem:
        return Explanation(tensor=tensor, status="not testable", skipped=(problem,))
    region.graph.sort()
    replayed = evaluate(region, feeds, runner)[tensor]
    if replayed.shape != candidate.shape or replayed.dtype.kind not in "fiub":
        reason = f"its shape is {candidate.shape} and not {replayed.shape}, or it holds no numbers"
        return Explanation(
            tensor=tensor, status="not testable", skipped=(Skip(what=f"explanation of {tensor}", reason=reason),)
        )
    if np.array_equal(replayed, candidate, equal_nan=replayed.dtype.kind == "f"):
        return Explanation(tensor=tensor, status="exact", elements=candidate.size)
    axis = channel_axis(candidate.ndim)
    scene = Scene(
        model=region,
        feeds=feeds,
        runner=runner,
        candidate=np.asarray(candidate, np.float64),
        replayed=np.asarray(replayed, np.float64),
        axis=axis,
        seed=options.seed,
    )
    generator = np.random.default_rng(options.seed)
    sigma = noise_floor(region, feeds, runner, Variant(words=""), generator, axis)
    known = [each for each in hypotheses().values() if each.family == "arithmetic"]
    outcomes, skipped = _arithmetic(scene, sigma, known if replayed.dtype.kind == "f" else [])
    plain = Claim(
        hypothesis=hypotheses()["f32_reordered"], variant=Variant(words="FP32, in another order of summation")
    )
    nothing = weigh(scene, plain, sigma)
    if nothing is None:
        raise ParityError(f"the region of {tensor} gave another shape when it ran again")
    return Weighed(
        tensor=tensor, scene=scene, sigma=sigma, nothing=nothing, outcomes=tuple(outcomes), skipped=tuple(skipped)
    )


def decide(weighed: Weighed, others: np.ndarray, options: Options) -> Explanation:
    """The verdict on a region, with `others` the p-values of other regions' channels, among which discoveries are made."""
    scene = weighed.scene
    if accepted(weighed.nothing, others):
        return Explanation(
            tensor=weighed.tensor,
            status="within floor",
            by=(_summary(scene, weighed.nothing, others),),
            elements=scene.candidate.size,
            skipped=weighed.skipped,
        )
    held = [each for each in weighed.outcomes if each.predicts and accepted(each, others)]
    skipped = list(weighed.skipped)
    tried: list[Outcome] = [each for each in weighed.outcomes if each.predicts]
    known = _declared(weighed, options.declared)
    if not held and in_size(weighed.nothing, known):
        nearest = sorted(known, key=lambda each: each.line.left2)
        return Explanation(
            tensor=weighed.tensor,
            status="expected",
            rejected=tuple(_summary(scene, each, others) for each in _different(nearest)[:_SHOWN]),
            evidence=(f"no channel and no element is off by more than the roundings of {options.declared} explain",),
            elements=scene.candidate.size,
            skipped=weighed.skipped,
        )
    if not held:
        functions, problems = _semantic(weighed, options)
        skipped.extend(problems)
        tried.extend(functions)
        held = [each for each in functions if accepted(each, others) and _substantial(scene, each)]
        held = held or [each for each in functions if each.line.share > SHARE_ROUNDED and in_size(each, known)]
    rejected = sorted(
        (each for each in tried if not accepted(each, others)), key=lambda each: (each.mismatched, -each.line.share)
    )
    best = tuple(_summary(scene, each, others) for each in _different(rejected)[:_SHOWN])
    if not held:
        return Explanation(
            tensor=weighed.tensor,
            status="unexplained",
            rejected=best,
            left=left_over(scene),
            elements=scene.candidate.size,
            skipped=tuple(skipped),
        )
    same = indistinguishable(_simplest(held), held)
    named, evidence = ordered(scene, same, options.declared)
    return Explanation(
        tensor=weighed.tensor,
        status="explained",
        by=tuple(_summary(scene, each, others) for each in _different(named)),
        rejected=best,
        evidence=evidence,
        elements=scene.candidate.size,
        skipped=tuple(skipped),
    )


def _declared(weighed: Weighed, declared: str) -> list[Outcome]:
    """The outcomes of the declared arithmetic, where the region has inner tensors that nobody saw."""
    inner = sum(1 for node in weighed.scene.model.graph if node.op_type != "Constant") > 1
    return [each for each in weighed.outcomes if inner and declared and each.claim.hypothesis.name.startswith(declared)]


def _untestable(region: ir.Model, candidate: np.ndarray) -> Skip | None:
    tensor = region.graph.outputs[0].name
    if candidate.size == 0:
        return Skip(what=f"explanation of {tensor}", reason="the tensor is empty")
    if candidate.dtype.kind in "OUST":
        return Skip(what=f"explanation of {tensor}", reason="the tensor holds text")
    if any(
        attribute.type.name in {"GRAPH", "GRAPHS"} for node in region.graph for attribute in node.attributes.values()
    ):
        return Skip(what=f"explanation of {tensor}", reason="its region holds control flow")
    return None


def _arithmetic(scene: Scene, sigma: np.ndarray, known: Sequence[Hypothesis]) -> tuple[list[Outcome], list[Skip]]:
    """Cheap ones first; products are added up step by step only where nothing else is accepted."""
    last = list(scene.model.graph)[-1]
    context = _context(scene)
    claims = [
        Claim(hypothesis=hypothesis, variant=variant)
        for hypothesis in known
        if hypothesis.name != "f32_reordered" and hypothesis.applies(last, scene.model.graph)
        for variant in hypothesis.variants(last, context)
    ]
    claims.sort(key=lambda each: each.variant.accumulate is not None)
    outcomes: list[Outcome] = []
    skipped = []
    for claim in claims:
        if claim.variant.accumulate is not None and any(_convincing(each) for each in outcomes):
            break
        outcome = weigh(scene, claim, sigma)
        if outcome is None:
            reason = "the product is too large to be added up term by term, or of a kind that is not"
            skipped.append(Skip(what=f"{claim.hypothesis.title}: {claim.variant.words}", reason=reason))
        else:
            outcomes.append(_light(settle(scene, outcome) if _hopeful(outcome) else outcome))
    return outcomes, skipped


def _convincing(outcome: Outcome) -> bool:
    return outcome.predicts and accepted(outcome, np.zeros(0))


def _hopeful(outcome: Outcome) -> bool:
    return outcome.mismatched == 0 and (outcome.line.share > _HOPEFUL or outcome.line.left2 <= 100 * outcome.floor2)


def _light(outcome: Outcome) -> Outcome:
    """Without its arrays where it cannot be accepted anyway: there are many, and tensors are large."""
    if _hopeful(outcome):
        return outcome
    return replace(outcome, predicted=np.zeros(0), sigma=np.zeros(0))


def _context(scene: Scene) -> Context:
    known: dict[str, np.ndarray] = {}

    def value(wanted: ir.Value) -> np.ndarray:
        if not known:
            known.update(evaluate(scene.model, scene.feeds, scene.runner))
        return known[str(wanted.name)]

    return Context(model=scene.model, candidate=scene.candidate, replayed=scene.replayed, value=value)


def _bases(weighed: Weighed, declared: str) -> list[tuple[str, Variant | None]]:
    """Arithmetics to try another function on top of: the best for most of the elements first, and FP32 always."""
    ranked = sorted((weighed.nothing, *weighed.outcomes), key=lambda each: (each.trimmed, each is not weighed.nothing))
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


def _semantic(weighed: Weighed, options: Options) -> tuple[list[Outcome], list[Skip]]:
    """Other functions: all of them on top of the likeliest arithmetic, the best ones on top of the others too."""
    scene = weighed.scene
    bases = _bases(weighed, options.declared)
    claims = list(_claims(scene))
    skipped = []
    if len(claims) > options.evaluations:
        reason = f"{len(claims)} variants, and {options.evaluations} are allowed"
        skipped.append(Skip(what=f"{len(claims) - options.evaluations} other functions", reason=reason))
        claims = claims[: options.evaluations]
    first = [_with_base(claim, bases[0]) for claim in claims]
    found = [outcome for claim in first if (outcome := _tried(weighed, claim)) is not None]
    found.sort(key=lambda each: (each.mismatched, -each.line.share))
    finalists = found[:_FINALISTS]
    for outcome in list(finalists):
        for base in bases[1:]:
            again = _tried(weighed, _with_base(replace(outcome.claim, parameter=None), base))
            if again is not None:
                finalists.append(again)
    return [settle(scene, each) if _hopeful(each) else each for each in finalists], skipped


def _claims(scene: Scene) -> Iterator[Claim]:
    context = _context(scene)
    known = [each for each in hypotheses().values() if each.family == "semantic"]
    for position, node in enumerate(scene.model.graph):
        for hypothesis in known:
            if hypothesis.applies(node, scene.model.graph):
                for variant in hypothesis.variants(node, context):
                    yield Claim(hypothesis=hypothesis, variant=variant, position=position)


def _with_base(claim: Claim, base: tuple[str, Variant | None]) -> Claim:
    return replace(claim, base_name=base[0], base=base[1])


def _tried(weighed: Weighed, claim: Claim) -> Outcome | None:
    """The outcome of a claim, its parameter fitted first; None where ONNX Runtime refuses the graph."""
    scene = weighed.scene
    try:
        if claim.variant.span is not None and claim.parameter is None:
            claim = replace(claim, parameter=_fitted(scene, claim, claim.variant.span))
        outcome = weigh(scene, claim, weighed.sigma)
    except ParityError:
        # Not every mode of an operator goes with every other attribute; what cannot be run was not computed either.
        return None
    return outcome if outcome is not None and outcome.predicts else None


def _fitted(scene: Scene, claim: Claim, span: tuple[float, float]) -> float:
    """The parameter that leaves least, by a grid and golden section (J. Kiefer, Proc. AMS 4, 1953)."""

    def left(parameter: float) -> float:
        exact = predict(scene, replace(claim, parameter=parameter))
        if exact is None:
            return math.inf
        with np.errstate(invalid="ignore"):
            rest = scene.candidate - stored(claim, exact)
        return float(np.square(rest[np.isfinite(rest)]).sum())

    grid = np.linspace(*span, _GRID)
    lowest = int(np.argmin([left(float(each)) for each in grid]))
    low, high = float(grid[max(0, lowest - 1)]), float(grid[min(_GRID - 1, lowest + 1)])
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_inner, at_outer = left(inner), left(outer)
    for _ in range(_STEPS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _GOLDEN * (high - low)
            at_inner = left(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _GOLDEN * (high - low)
            at_outer = left(outer)
    at_best, best = min((at_inner, inner), (at_outer, outer))
    for digits in _DIGITS:
        short = float(f"{best:.{digits}g}")
        if left(short) <= at_best * (1.0 + _AS_GOOD):
            return short
    return float(np.float32(best))


def _substantial(scene: Scene, outcome: Outcome) -> bool:
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


def _simplest(held: Sequence[Outcome]) -> Outcome:
    """The best of the accepted ones; without a fitted number where that explains as much."""
    best = max(held, key=lambda each: each.line.share)
    plain = [each for each in held if each.claim.parameter is None and each.line.share >= best.line.share - _SIMPLER]
    return max(plain, key=lambda each: each.line.share, default=best)


def _different(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The first outcome of each hypothesis."""
    found: dict[tuple[str, int], Outcome] = {}
    for outcome in outcomes:
        found.setdefault((outcome.claim.hypothesis.name, outcome.claim.position), outcome)
    return list(found.values())


def _summary(scene: Scene, outcome: Outcome, others: np.ndarray) -> Explained:
    position = outcome.claim.position
    node = "" if position < 0 else node_name(scene.model.graph[position], position)
    return summary(outcome, others, node)
