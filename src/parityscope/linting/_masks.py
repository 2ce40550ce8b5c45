"""Constants that stand for infinity: what they are added, multiplied or chosen into ends in a Softmax or a maximum.

A constant counts if it is hugely negative where it is not 0 or 1 (a scalar, or a table of 0 and "minus infinity"), and
the first nodes behind its reader lead to an operator that ignores very small elements. A positive one counts where the
way there changes its sign (Sub, Neg), or ends in a minimum; either one where the way ends in an operator that gives
the same for infinity as for any huge number (Sigmoid, Clip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass
from parityscope.operators import MOVING, with_trait

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.linting.records import FileConstant

_INTO = (with_trait("affine") - {"Div"}) | (with_trait("chooses elements") - {"OneHot"}) | {"Sum", "Trilu"}
_THROUGH = MOVING | _INTO | {"Neg", "Div"} | {"Max", "Min"} | {"If"}
_NORMALIZE = with_trait("softmax inside")
_LARGEST = with_trait("largest")
_SMALLEST = with_trait("smallest")
_SATURATE = with_trait("saturates")
_REACH = 16  # nodes on the way; chosen: an exported attention mask takes up to ten
_SMALLEST_MASK = 1e4  # the smallest magnitude that is used as infinity in practice (BERT's -10,000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a mask ends: the operator that ignores it, and whether it is multiplied by something computed first."""

    node: ir.Node
    multiplied: bool

    @property
    def normalizes(self) -> bool:
        """Whether a row that is masked as a whole has no answer there."""
        return self.node.op_type in _NORMALIZE


def is_mask(constant: FileConstant, node: ir.Node, position: int) -> bool:
    """Whether `constant`, read by `node` at `position`, stands for infinity."""
    return goal_of(constant, node, position) is not None


def goal_of(constant: FileConstant, node: ir.Node, position: int) -> Goal | None:
    """Where the mask that `constant` is ends; None when it is none."""
    sign = _mask_sign(constant)
    if sign == 0 or node.op_type not in _INTO or node.domain:
        return None
    if node.op_type == "Sub" and position == 1:
        sign = -sign
    for output in node.outputs:
        found = _search_goal(output, sign, _REACH)
        if found is not None:
            return Goal(node=found, multiplied=node.op_type == "Mul")
    return None


def _mask_sign(constant: FileConstant) -> int:
    """-1 for a table of 0, 1 and hugely negative numbers, 1 for hugely positive ones, 0 for anything else."""
    low, high, infinite = float(constant.numbers.lowest), float(constant.numbers.highest), constant.numbers.infinite
    if low <= -_SMALLEST_MASK and 0 <= high <= 1:
        return -1
    if high >= _SMALLEST_MASK and 0 <= low <= 1:
        return 1
    if low == high and abs(low) >= _SMALLEST_MASK:
        return 1 if low > 0 else -1
    if infinite and low >= 0 and high <= 1:
        return _infinite_sign(constant)
    return 0


def _infinite_sign(constant: FileConstant) -> int:
    import numpy as np

    if constant.few is None:
        return -1
    return 1 if bool(np.isposinf(constant.few).any()) else -1


def _search_goal(value: ir.Value, sign: int, reach: int) -> ir.Node | None:
    frontier = [(value, sign)]
    for _ in range(reach):
        following: list[tuple[ir.Value, int]] = []
        for current, way in frontier:
            for node, position in current.uses():
                ends = (_NORMALIZE | _LARGEST) if way < 0 else _SMALLEST
                if node.op_type in ends or node.op_type in _SATURATE:
                    return node
                if node.op_type in _THROUGH:
                    turned = -way if node.op_type == "Neg" or (node.op_type == "Sub" and position == 1) else way
                    following.extend((output, turned) for output in node.outputs)
        frontier = list({(id(one[0]), one[1]): one for one in following}.values())
    return None
