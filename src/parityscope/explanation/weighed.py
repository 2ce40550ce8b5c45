"""A region with every arithmetic hypothesis held against it.

What may be spent on one region: seconds that are estimated from its size and not measured.

A clock would make the verdict depend on how busy the machine is. Instead every evaluation of a region is charged what it
takes on one core of a slow server (constants measured on one, rounded up), so the same search is made everywhere.
What could not be paid for is counted, and becomes a `Skip`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.attention import attention_apart
from parityscope.arithmetic.sites import PRODUCTS
from parityscope.comparison import channel_axis
from parityscope.errors import ParityError
from parityscope.explanation.claims import ClaimOutcome, RegionScene, VariantClaim
from parityscope.explanation.floor import noise_floor
from parityscope.explanation.judging import is_convincing, is_hopeful, surely_nothing
from parityscope.explanation.records import Explanation, ExplanationOptions
from parityscope.explanation.regions import evaluate_region
from parityscope.explanation.weighing import settle_outcome, weigh_claim
from parityscope.hypotheses.arithmetic import RegionContext, Variant, known_hypotheses
from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.evaluation.sessions import Sessions

_CALL = 1e-4  # seconds: one node's session
_ELEMENT = 1e-8  # one element that a node reads, or that is rounded
_PRODUCT = 3e-10  # one multiplication and addition in FP32
_WEIGHED = 8e-8  # one element of the output: regression, floor, ties
_ADDED = 4e-8  # one term of a sum that is rounded after every 1, 4, 8 or 16 terms, in numpy, on average
_DRAWS = 11  # evaluations that a floor of its own takes


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPrice:
    """Estimated seconds: of computing a region once, of holding a result against the candidate, of adding up term by term."""

    evaluation: float
    weighing: float
    accumulation: float

    @property
    def settling(self) -> float:
        """Of a floor of its own for a claim, and holding the claim against it."""
        return _DRAWS * self.evaluation + self.weighing


@dataclass(slots=True, kw_only=True)
class TimeBudget:
    """Seconds left, and what was not tried for want of them (by title)."""

    left: float
    refused: Counter[str] = field(default_factory=Counter)

    def pay(self, seconds: float, title: str) -> bool:
        """Takes the price of trying something called `title`; False, and nothing taken, where it is too much."""
        if seconds > self.left:
            self.refused[title] += 1
            return False
        self.left -= seconds
        return True

    def skips(self) -> list[Skip]:
        """What was refused."""
        reason = "the budget of this region is spent (Options.seconds)"
        return [
            Skip(what=f"{title}: {count} variant{'' if count == 1 else 's'}", reason=reason)
            for title, count in self.refused.items()
        ]


def price_region(model: ir.Model, known: Mapping[str, np.ndarray]) -> RegionPrice:
    """The prices of a region, all of whose values are `known`: arrays by name, of which the sizes alone count."""
    once = terms = 0.0
    for node in model.graph:
        read = [known[str(value.name)] for value in node.inputs if value is not None and str(value.name) in known]
        made = sum(known[str(value.name)].size for value in node.outputs if str(value.name) in known)
        once += _CALL + _ELEMENT * (made + sum(each.size for each in read))
        if node.op_type in PRODUCTS and len(read) > 1:
            terms += made * _sum_length(node, read)
    out = known[str(model.graph.outputs[0].name)].size
    return RegionPrice(evaluation=once + _PRODUCT * terms, weighing=_WEIGHED * out, accumulation=_ADDED * terms)


def _sum_length(node: ir.Node, read: list[np.ndarray]) -> float:
    """Terms of one sum; at least so many where the operator is not one of the usual ones."""
    if "Conv" in node.op_type:
        return float(read[1].size / max(1, read[1].shape[0]))
    return float(read[0].shape[-1]) if read[0].ndim else 1.0


_ALIKE = 1e-5  # relative L2: FP32's rounding of any length of sums, and far below what TF32 makes. Chosen.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighed:
    """What came out for each arithmetic of the `region`, and what is left to be spent.

    `nothing` is FP32 in another order, `by_size` are claims that only magnitudes can decide.
    """

    tensor: str
    region: ir.Model
    scene: RegionScene
    sigma: np.ndarray
    nothing: ClaimOutcome
    outcomes: tuple[ClaimOutcome, ...]
    by_size: tuple[VariantClaim, ...]
    skipped: tuple[Skip, ...]
    price: RegionPrice
    budget: TimeBudget

    @property
    def dtype(self) -> str:
        """The element type of the tensor."""
        return str(self.region.graph.outputs[0].dtype.numpy().name) if self.region.graph.outputs[0].dtype else "float32"

    @property
    def best(self) -> ClaimOutcome:
        """The arithmetic that leaves least above the floor."""
        return min((self.nothing, *self.outcomes), key=lambda each: (each.mismatched, each.line.left2))


def weigh_arithmetic(
    region: ir.Model,
    feeds: Mapping[str, np.ndarray],
    candidate: np.ndarray,
    options: ExplanationOptions,
    sessions: Sessions,
) -> Weighed | Explanation:
    """Every arithmetic hypothesis held against a region; an explanation at once where there is nothing to weigh.

    Args:
        region: The graph between observed tensors; its one output is the tensor that is explained.
        feeds: What the candidate had at the region's inputs, by name.
        candidate: What it made of them, of the output's shape and dtype.
        options: What is declared, and what may be spent.
        sessions: Serve further regions too.

    Raises:
        ParityError: ONNX Runtime refuses a node of the region.
    """
    tensor = str(region.graph.outputs[0].name)
    problem = _why_untestable(region, candidate)
    if problem:
        return Explanation(tensor=tensor, status="not testable", skipped=(problem,))
    region.graph.sort()
    known = evaluate_region(region, feeds, sessions)
    replayed = known[tensor]
    if replayed.shape != candidate.shape or replayed.dtype.kind not in "fiub":
        reason = f"its shape is {candidate.shape} and not {replayed.shape}, or it holds no numbers"
        return Explanation(
            tensor=tensor, status="not testable", skipped=(Skip(what=f"explanation of {tensor}", reason=reason),)
        )
    if np.array_equal(replayed, candidate, equal_nan=replayed.dtype.kind == "f"):
        return Explanation(tensor=tensor, status="exact", elements=candidate.size)
    whole = region
    region, known = _open_attention(region, feeds, known, sessions)
    scene = RegionScene(
        model=region,
        feeds=feeds,
        sessions=sessions,
        candidate=np.asarray(candidate, np.float64),
        replayed=np.asarray(replayed, np.float64),
        axis=channel_axis(candidate.ndim),
        seed=options.seed,
    )
    return _weigh_region(tensor, whole, scene, price_region(region, known), options, floats=replayed.dtype.kind == "f")


def _weigh_region(
    tensor: str, region: ir.Model, scene: RegionScene, prices: RegionPrice, options: ExplanationOptions, *, floats: bool
) -> Weighed:
    generator = np.random.default_rng(options.seed)
    sigma = noise_floor(scene.model, scene.feeds, scene.sessions, Variant(words=""), generator, scene.axis)
    plain = VariantClaim(
        hypothesis=known_hypotheses()["f32_reordered"], variant=Variant(words="FP32, in another order of summation")
    )
    nothing = weigh_claim(scene, plain, sigma)
    if nothing is None:
        raise ParityError(f"the region of {tensor} gave another shape when it ran again")
    budget = TimeBudget(left=options.seconds)
    claims = _list_claims(scene, options.declared) if floats and not surely_nothing(nothing) else []
    outcomes, skipped = _weigh_claims(
        scene, sigma, [each for each in claims if not each.variant.by_size], prices, budget
    )
    skipped.extend(budget.skips())
    return Weighed(
        tensor=tensor,
        region=region,
        scene=scene,
        sigma=sigma,
        nothing=nothing,
        outcomes=tuple(outcomes),
        by_size=tuple(each for each in claims if each.variant.by_size),
        skipped=tuple(skipped),
        price=prices,
        budget=budget,
    )


def _open_attention(
    region: ir.Model, feeds: Mapping[str, np.ndarray], known: dict[str, np.ndarray], sessions: Sessions
) -> tuple[ir.Model, dict[str, np.ndarray]]:
    """The region with its attention taken apart, and its values; as it is where that gives anything else."""
    apart = attention_apart(region, {name: array.shape for name, array in known.items()})
    if apart is region:
        return region, known
    tensor = str(region.graph.outputs[0].name)
    found = evaluate_region(apart, feeds, sessions)
    whole, parts = (np.asarray(each[tensor], np.float64) for each in (known, found))
    same = whole.shape == parts.shape and np.array_equal(np.isfinite(whole), np.isfinite(parts))
    error = np.where(np.isfinite(whole), whole - parts, 0.0) if same else np.inf
    size = np.linalg.norm(np.where(np.isfinite(whole), whole, 0.0))
    return (apart, found) if np.linalg.norm(error) <= _ALIKE * size else (region, known)


def context_of(scene: RegionScene) -> RegionContext:
    """What hypotheses may look at."""
    known: dict[str, np.ndarray] = {}

    def value(wanted: ir.Value) -> np.ndarray:
        if not known:
            known.update(evaluate_region(scene.model, scene.feeds, scene.sessions))
        return known[str(wanted.name)]

    return RegionContext(model=scene.model, candidate=scene.candidate, replayed=scene.replayed, value=value)


def _why_untestable(region: ir.Model, candidate: np.ndarray) -> Skip | None:
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


def _list_claims(scene: RegionScene, declared: str) -> list[VariantClaim]:
    """Every variant of every arithmetic but plain FP32, in the order that a budget is best spent on.

    The declared one first, of it what a runtime does that computes in this format (inputs and output in it), then hypotheses
    of few variants; products added up term by term last.
    """
    last = list(scene.model.graph)[-1]
    context = context_of(scene)
    claims = [
        VariantClaim(hypothesis=hypothesis, variant=variant)
        for hypothesis in known_hypotheses().values()
        if hypothesis.name != "f32_reordered"
        if hypothesis.applies(last, scene.model.graph)
        for variant in hypothesis.variants(last, context)
    ]

    counts = Counter(each.hypothesis.name for each in claims)
    usual = usual_arithmetics(declared)

    def late(claim: VariantClaim) -> tuple[bool, bool, bool, int]:
        name = claim.hypothesis.name
        told = bool(declared) and name.startswith(declared)
        return claim.variant.accumulate is not None, not told, name not in usual, counts[name]

    return sorted(claims, key=late)


def usual_arithmetics(declared: str) -> frozenset[str]:
    """Names of the hypotheses that a runtime which computes in a declared format usually confirms."""
    return frozenset({f"{declared}_inputs_output", f"{declared}_nearest"}) if declared else frozenset()


def _weigh_claims(
    scene: RegionScene, sigma: np.ndarray, claims: list[VariantClaim], prices: RegionPrice, budget: TimeBudget
) -> tuple[list[ClaimOutcome], list[Skip]]:
    """Cheap ones first; products are added up step by step only where nothing else is accepted."""
    outcomes: list[ClaimOutcome] = []
    skipped = []
    for claim in claims:
        stepwise = claim.variant.accumulate is not None
        if stepwise and any(is_convincing(each) for each in outcomes):
            break
        cost = (prices.accumulation if stepwise else prices.evaluation) + prices.weighing
        if not budget.pay(cost, claim.hypothesis.title):
            continue
        outcome = weigh_claim(scene, claim, sigma)
        if outcome is None:
            reason = "the product is too large to be added up term by term, or of a kind that is not"
            skipped.append(Skip(what=f"{claim.hypothesis.title}: {claim.variant.words}", reason=reason))
            continue
        likely = is_hopeful(outcome) and budget.pay(prices.settling, f"{claim.hypothesis.title}, its own noise floor")
        outcomes.append(_drop_arrays(settle_outcome(scene, outcome) if likely else outcome))
    return outcomes, skipped


def _drop_arrays(outcome: ClaimOutcome) -> ClaimOutcome:
    """Without its arrays where it cannot be accepted anyway: there are many, and tensors are large."""
    return outcome if is_hopeful(outcome) else replace(outcome, predicted=np.zeros(0), sigma=np.zeros(0))
