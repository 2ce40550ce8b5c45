"""A stretch that the candidate's graph writes otherwise, and that gives other values -> which part of it is why.

The other writing is harmless where one change that the reference's own steps can make (an attribute, a constant, an input of
steps that both have) gives what the candidate's stretch gives, or where the candidate's own steps without it give what the
reference's give; so it is where weights, with all scales and offsets behind them folded in on both sides, differ. Then that is
what is told.

What a linear step and the scales and offsets behind it amount to: one weight and one bias.

A simplifier folds a BatchNormalization, or a Mul and an Add by constants, into the Conv, Gemm or MatMul above. Folded on both
sides alike, weights can be held against each other as if nobody had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.hypotheses.from_other_graph.constants import VAGUE, ConstantChange, change_of
from parityscope.hypotheses.from_other_graph.differing import REWRITTEN, TRAINING
from parityscope.hypotheses.from_other_graph.likeness import may_be_same, relative_distance
from parityscope.hypotheses.from_other_graph.mixing import compute_stretch, steps_of
from parityscope.hypotheses.from_other_graph.reading import is_training_step, operator_family
from parityscope.light_dataclasses import dataclass, replace
from parityscope.operators import CONTRACTIONS, with_trait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.evaluation.sessions import Sessions
    from parityscope.hypotheses.from_other_graph.aligning import Alignment
    from parityscope.hypotheses.from_other_graph.difference import GraphDifference
    from parityscope.hypotheses.from_other_graph.differing import DifferingStretch
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph

_EPSILON = 1e-5  # BatchNormalization's default
_PASSING = with_trait("passes on")
_LINEAR = CONTRACTIONS - {"ConvTranspose"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldedProduct:
    """A linear step's weight by name, with its output channels first, and its bias (float64), as they stand and in all.

    `scale` and `offset` are those of each channel that are folded into it. `left` are the operators of the other steps, sorted.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    left: tuple[str, ...]

    @property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight and bias with all scales and offsets."""
        return self.weight * _scale_by_channel(self.scale, self.weight), self.bias * self.scale + self.offset

    def unfolded(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Another whole weight and bias, with the scales and offsets of this one taken out."""
        with np.errstate(all="ignore"):
            return weight / _scale_by_channel(self.scale, weight), (bias - self.offset) / self.scale


def fold_linear_step(graph: ReadGraph, steps: Sequence[ProgramStep]) -> FoldedProduct | None:
    """The one linear step among `steps` with the scales and offsets behind it; None where there are more or none.

    What follows behind those is left aside, and told.
    """
    linear = [step for step in steps if operator_family(step) in _LINEAR and len(step.inputs) > 1]
    weight = graph.constants.get(linear[0].inputs[1]) if len(linear) == 1 else None
    if weight is None or weight.ndim < 2:
        return None
    step = linear[0]
    matrix = np.asarray(weight, np.float64)
    if operator_family(step) != "Conv" and not step.node.attributes.get_int("transB", 0):
        matrix = np.moveaxis(matrix, -1, 0)
    bias = np.zeros(len(matrix))
    if len(step.inputs) > 2 and step.inputs[2] in graph.constants:
        bias = bias + np.asarray(graph.constants[step.inputs[2]], np.float64).reshape(-1)
    scale, offset = np.ones(len(matrix)), np.zeros(len(matrix))
    site, folded = step.outputs[0], {step.index}
    while True:
        readers = [one for one, _ in graph.readers.get(site, ()) if any(one is other for other in steps)]
        found = _affine_of_step(graph, readers[0], site, len(matrix)) if len(readers) == 1 else None
        if found is None:
            left = (one for one in steps if one.index not in folded and operator_family(one) not in _PASSING)
            return FoldedProduct(
                name=step.inputs[1],
                weight=matrix,
                bias=bias,
                scale=scale,
                offset=offset,
                left=tuple(sorted(map(operator_family, left))),
            )
        folded.add(readers[0].index)
        scale, offset = scale * found[0], offset * found[0] + found[1]
        site = readers[0].outputs[0]


def _scale_by_channel(scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return scale.reshape(-1, *[1] * (weight.ndim - 1))


def _affine_of_step(
    graph: ReadGraph, step: ProgramStep, site: str, channels: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and offset that a step applies to each channel; None where it does something else."""
    if is_training_step(step):
        return None
    if step.op_type == "Neg":
        return -np.ones(channels), np.zeros(channels)
    held = [graph.constants.get(name) for name in step.inputs if name != site]
    if any(array is None for array in held) or not held:
        return None
    arrays = [np.asarray(array, np.float64).reshape(-1) for array in held if array is not None]
    if any(array.size not in {1, channels} for array in arrays):
        return None
    one, nought = np.ones(channels), np.zeros(channels)
    if step.op_type == "BatchNormalization" and len(arrays) == 4:
        gain, shift, mean, variance = arrays
        scale = gain / np.sqrt(variance + step.node.attributes.get_float("epsilon", _EPSILON))
        return scale, shift - mean * scale
    if step.op_type == "Mul":
        return one * arrays[0], nought
    if step.op_type == "Add":
        return one, nought + arrays[0]
    if step.inputs[0] == site and step.op_type == "Div":
        return one / arrays[0], nought
    if step.inputs[0] == site and step.op_type == "Sub":
        return one, nought - arrays[0]
    return None


_LEFT = 0.03  # of the stretch's error may be left by what is told as all of it, chosen: 99.9 % of it in squares
_FOLDED = 1e-5  # relative L2 of products that were rounded once or twice


def name_difference(alignment: Alignment, stretch: DifferingStretch, sessions: Sessions) -> DifferingStretch:
    """The stretch with its one difference in the words of the part that makes it, where one does."""
    if stretch.unknown:
        return _measure_known(alignment, stretch, sessions)
    if not stretch.parts and stretch.error <= REWRITTEN:
        return stretch
    whole = [one for one in stretch.differences if one.kind == "structure" and not one.declared]
    if len(stretch.differences) != 1 or not whole or stretch.error <= REWRITTEN or whole[0].group == TRAINING:
        return stretch
    part = next((one for one in stretch.parts if _part_explains(alignment, stretch, one, sessions)), None)
    if part is not None:
        at = part.at or alignment.reference.program.steps[part.maker].outputs[0]
        told = replace(whole[0], words=part.words, group=part.group, node=part.node, declared=part.declared, at=at)
        return replace(stretch, differences=(told,))
    words = _folded_words(alignment, stretch)
    if words:
        return replace(stretch, differences=(replace(whole[0], words=words, group=f"folded {stretch.site}"),))
    # No other writing of the same function makes a step read another value: that is told beside what was added or left out.
    beside = [one.words for one in stretch.parts if one.kind == "inputs"]
    told = replace(whole[0], words="; ".join((whole[0].words, *beside)))
    return replace(stretch, differences=(told,)) if beside else stretch


def _measure_known(alignment: Alignment, stretch: DifferingStretch, sessions: Sessions) -> DifferingStretch:
    """A stretch that only the reference's steps can compute, with what of its differences these can have: all, or each alone."""
    kept: dict[GraphDifference, float] = {}
    for some in (stretch.differences, *((one,) for one in stretch.differences)):
        if kept.keys() >= {*some}:
            continue
        made, place = steps_of(alignment, stretch, some)
        try:
            found = compute_stretch(alignment, made, place, {}, alignment.values, sessions)
        except ParityError:  # that is what cannot be run
            continue
        if may_be_same(alignment.values[stretch.site], found):
            kept.update(dict.fromkeys(some, relative_distance(alignment.values[stretch.site], found)))
    return replace(stretch, differences=tuple(kept), error=max(kept.values(), default=0.0))


def _part_explains(alignment: Alignment, stretch: DifferingStretch, part: GraphDifference, sessions: Sessions) -> bool:
    """Whether with this part, and what belongs to it, one side's steps give what the other's give: put in, or taken back."""
    belonging = [one for one in stretch.parts if one.group == part.group]
    others = [one for one in stretch.parts if one.group != part.group]
    wanted = (alignment.seen.get(stretch.candidate), alignment.values.get(stretch.site))
    ways = ((stretch, belonging, True), (replace(stretch, differences=stretch.parts), others, False))
    for result, (changed, active, mine) in zip(wanted, ways, strict=True):
        made, place = steps_of(alignment, changed, active, mine=mine)
        try:
            found = compute_stretch(alignment, made, place, {}, alignment.values, sessions)
        except ParityError:
            continue
        same = result is not None and found.shape == result.shape
        if same and relative_distance(result, found) <= max(REWRITTEN, _LEFT * stretch.error):
            return True
    return False


def _length_of(change: ConstantChange) -> tuple[bool, int]:
    """How long a change is in words; one that only says how far things are apart is longer than any."""
    return change.words.startswith(VAGUE), len(change.words)


def _folded_words(alignment: Alignment, stretch: DifferingStretch) -> str:
    reference = fold_linear_step(alignment.reference, stretch.steps)
    candidate = fold_linear_step(alignment.candidate, stretch.its_steps)
    if reference is None or candidate is None or reference.weight.shape != candidate.weight.shape:
        return ""
    if reference.left != candidate.left:  # another step is behind it: no other weight says that
        return ""
    # As the reference has them, if the candidate's scales are the same; else with all that is folded in.
    plain = zip((reference.weight, reference.bias), reference.unfolded(*candidate.whole), strict=True)
    whole = zip(reference.whole, candidate.whole, strict=True)
    found: list[tuple[str, ConstantChange]] = []
    for what, alone, together in zip(("constant", "the bias of"), plain, whole, strict=True):
        if relative_distance(*together) > _FOLDED:
            # What folding rounded otherwise is no change.
            same = np.isclose(*together, rtol=_FOLDED, atol=0.0)
            pairs = [(np.where(same, other, one), other) for one, other in (alone, together)]
            found.append((what, min((change_of(*pair) for pair in pairs), key=_length_of)))
    return "; ".join(f"{what} {reference.name}, with what is folded into it: {change.words}" for what, change in found)
