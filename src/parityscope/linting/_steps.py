"""Steps of operators that exporters take apart: squares, cubes and exponentials, and what they are part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.linting._walk import is_same_value, kept_in_fp32, node_behind, nodes_ahead, number_of
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Place, Sheet

_SUMS = frozenset({"ReduceMean", "ReduceSum", "GlobalAveragePool"})
_REACH = 8  # nodes between the square and the root behind it: reductions, divisions by a count, an epsilon
_BETWEEN = _SUMS | with_trait("guards") | {"Mul", "Div"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowStep:
    """A node that raises to `power` (0: the exponential), what it is part of, and whether the model keeps it in FP32."""

    place: Place
    power: int
    part_of: str
    kept: bool


def find_steps(sheet: Sheet) -> Iterator[OverflowStep]:
    """Every step of the file that may overflow before its input does."""
    for place in sheet.places:
        power = _power_of_node(sheet, place.node)
        if power is None:
            continue
        part_of = {0: _part_of_exponential, 2: _part_of_square, 3: _part_of_cube}[power](place.node)
        if part_of:
            yield OverflowStep(place=place, power=power, part_of=part_of, kept=kept_in_fp32(sheet, place, 0))


def _power_of_node(sheet: Sheet, node: ir.Node) -> int | None:
    if node.op_type == "Exp":
        return 0
    if node.op_type == "Mul" and not node.domain and is_same_value(input_at(node, 0), input_at(node, 1)):
        return 2
    if node.op_type == "Pow":
        exponent = number_of(sheet, input_at(node, 1))
        return {2.0: 2, 3.0: 3}.get(exponent) if exponent is not None else None
    return None


def _part_of_square(node: ir.Node) -> str:
    summed = [each for each in nodes_ahead(node) if each.op_type in _SUMS]
    if not summed or not _leads_to_root(summed[0], _REACH):
        return "a square" if summed or node.op_type == "Pow" else ""
    source = node_behind(input_at(node, 0))
    if source is not None and source.op_type == "Sub":
        return "LayerNormalization"
    return "RMSNormalization" if summed[0].op_type == "ReduceMean" else "an L2 norm"


def _leads_to_root(node: ir.Node, reach: int) -> bool:
    frontier = [node]
    for _ in range(reach):
        following = list(dict.fromkeys(each for held in frontier for each in nodes_ahead(held)))
        if any(each.op_type in {"Sqrt", "Pow"} for each in following):
            return True
        frontier = [each for each in following if each.op_type in _BETWEEN]
    return False


def _part_of_cube(node: ir.Node) -> str:
    following = nodes_ahead(node)
    for _ in range(4):
        if any(each.op_type == "Tanh" for each in following):
            return "GELU"
        following = [
            behind_it for each in following if each.op_type in {"Mul", "Add"} for behind_it in nodes_ahead(each)
        ]
    return ""


def _part_of_exponential(node: ir.Node) -> str:
    following = nodes_ahead(node)
    source = node_behind(input_at(node, 0))
    if any(each.op_type == "ReduceSum" for each in following):
        return "" if source is not None and source.op_type == "Sub" and _is_maximum(input_at(source, 1)) else "Softmax"
    if any(each.op_type == "Add" and any(then.op_type == "Log" for then in nodes_ahead(each)) for each in following):
        return "Softplus"
    return ""


def _is_maximum(value: ir.Value | None) -> bool:
    """Whether a value is the maximum of a row, also where it is bounded from below (as JAX does, by -infinity)."""
    node = node_behind(value)
    if node is not None and node.op_type == "Max":
        return any(_is_maximum(each) for each in node.inputs)
    return node is not None and node.op_type == "ReduceMax"
