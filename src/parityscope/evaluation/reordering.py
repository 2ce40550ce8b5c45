"""The same network with its sums in another order: exact in real arithmetic, different in floating point.

Products whose second operand is a weight take both operands with the axis that they sum over permuted, by one random order
for each. Grouped convolutions (nothing to permute but taps) and products of two computed tensors stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.evaluation.worlds import Then, World
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from parityscope.evaluation.program import ProgramStep
    from parityscope.evaluation.worlds import Change, Input


@dataclass(frozen=True, slots=True)
class Permuted:
    """Takes the indices of one axis in the order `order` (a permutation, as bytes of int64)."""

    axis: int
    order: bytes

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A permuted copy."""
        return np.take(array, np.frombuffer(self.order, np.int64), self.axis)


def reordered_world(world: World, generator: np.random.Generator) -> World:
    """`world` with the sums of its products with weights in an order drawn from `generator`."""
    taken: dict[Input, Change] = dict(world.taken)
    constants = dict(world.constants)
    for step in world.program.steps:
        axes = _summed_axes(step)
        weights = world.program.constants.get(step.inputs[1]) if len(step.inputs) > 1 else None
        if axes is None or weights is None or weights.ndim < 2 or weights.shape[axes[1]] < 2:
            continue
        order = generator.permutation(weights.shape[axes[1]]).astype(np.int64).tobytes()
        for index, axis in enumerate(axes):
            place, permuted = (step.key, index), Permuted(axis, order)
            if place in constants:
                constants[place] = permuted(constants[place])
                continue
            before = taken.get(place)
            taken[place] = permuted if before is None else Then(before, permuted)
    return replace(world, taken=taken, constants=constants)


def _summed_axes(step: ProgramStep) -> tuple[int, int] | None:
    """The axis summed over, of the data and of the weights; None where it cannot be permuted."""
    node = step.node
    if node.domain not in {"", "ai.onnx"}:
        return None
    if node.op_type == "Conv":
        return (1, 1) if node.attributes.get_int("group", 1) == 1 else None
    if node.op_type == "Gemm":
        return (0 if node.attributes.get_int("transA", 0) else 1, 1 if node.attributes.get_int("transB", 0) else 0)
    return (-1, -2) if node.op_type == "MatMul" else None
