"""A region, a claim about it (a variant of a hypothesis), what the claim predicts, and what that showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.explanation.regions import NotAccumulatedError, evaluate_region
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.evaluation.sessions import Sessions
    from parityscope.explanation.regression import RegressionLine
    from parityscope.hypotheses.arithmetic import FormatRounding, Hypothesis, Variant
    from parityscope.hypotheses.worker import EditCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionScene:
    """A region on the candidate's inputs: its graph, c and f(c_in) (float64, equal shapes), and where channels lie."""

    model: ir.Model
    feeds: Mapping[str, np.ndarray]
    sessions: Sessions
    candidate: np.ndarray
    replayed: np.ndarray
    axis: int | None
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantClaim:
    """A variant of a hypothesis about one node (its position in the graph; -1: the region), on top of an arithmetic.

    Of a generated one `exact` is what it predicts, before the output is rounded, and `generated` what its search said.
    """

    hypothesis: Hypothesis
    variant: Variant
    position: int = -1
    base: Variant | None = None
    base_name: str = ""
    exact: np.ndarray | None = None
    generated: EditCandidate | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimOutcome:
    """What a claim showed: the line, the rest by channel, and the size of its rest without the worst quarter.

    `energy` and `peak` are the size of what is predicted, `left_energy` and `left_peak` of what is left, by channel.
    `ratios` are the channels' root mean square z; `chances` their p-values, and the whole tensor's behind them.
    """

    claim: VariantClaim
    line: RegressionLine
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


def rewrite_region(scene: RegionScene, claim: VariantClaim) -> tuple[ir.Model, Variant]:
    """The graph and the arithmetic that a claim stands for."""
    variant = claim.variant if claim.base is None else replace(claim.base, words=claim.variant.words)
    base = None if claim.base is None else claim.base.rewrite
    if claim.variant.rewrite is None and base is None:
        return scene.model, variant
    model = scene.model.clone()
    if claim.variant.rewrite is not None:
        claim.variant.rewrite(model, model.graph[claim.position], 0.0)
    if base is not None:
        base(model, model.graph[-1], 0.0)
    model.graph.sort()
    return model, variant


def predict_output(scene: RegionScene, claim: VariantClaim) -> np.ndarray | None:
    """The region's output under a claim, in its own dtype, before the rounding of the output; None if it cannot be had.

    Raises:
        ParityError: ONNX Runtime refuses the rewritten graph.
    """
    if claim.exact is not None:
        return claim.exact if claim.exact.shape == scene.candidate.shape else None
    model, variant = rewrite_region(scene, claim)
    try:
        # Overflow is what some hypotheses predict.
        with np.errstate(over="ignore", invalid="ignore"):
            known = evaluate_region(model, scene.feeds, scene.sessions, variant)
    except NotAccumulatedError:
        return None
    array = known[str(model.graph.outputs[0].name)]
    return array if array.shape == scene.candidate.shape else None


def store_output(claim: VariantClaim, array: np.ndarray) -> np.ndarray:
    """What is stored of the output: rounded where the claim says so; float64."""
    rounding = output_of(claim)
    if rounding is None or array.dtype.kind != "f":
        return np.asarray(array, np.float64)
    # What a half-precision model computes is held by FP32 exactly.
    wide = array if array.dtype.itemsize > 2 else array.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(rounding.apply(wide), np.float64)


def output_of(claim: VariantClaim) -> FormatRounding | None:
    """The rounding of the output under a claim."""
    return claim.variant.output if claim.base is None else claim.base.output
