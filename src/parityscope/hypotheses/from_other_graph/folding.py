"""What a linear step and the scales and offsets behind it amount to: one weight and one bias.

A simplifier folds a BatchNormalization, or a Mul and an Add by constants, into the Conv, Gemm or MatMul above. Folded on both
sides alike, weights can be held against each other as if nobody had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.from_other_graph.reading import is_training_step, operator_family
from parityscope.operators import CONTRACTIONS, with_trait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.evaluation.program import ProgramStep
    from parityscope.hypotheses.from_other_graph.reading import ReadGraph

__all__ = ["FoldedProduct", "fold_linear_step"]

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
