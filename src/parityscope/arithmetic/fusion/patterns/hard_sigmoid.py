"""HardSigmoid: `Clip(x + 3, 0, 6) / 6` as nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import MatchedRegion, data_inputs, is_closed, scalar_constant
from parityscope.arithmetic.fusion.patterns import Pattern

if TYPE_CHECKING:
    import onnx_ir as ir

_SIX = 6.0


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:  # noqa: ARG001 - all patterns are called alike
    """The HardSigmoid that ends in `node`, its division by six."""
    found = _divided_by_six(node)
    clip = None if found is None else found.producer()
    if clip is None or clip.op_type != "Clip" or [scalar_constant(value) for value in clip.inputs[1:]] != [0.0, _SIX]:
        return None
    shift = clip.inputs[0].producer() if clip.inputs[0] is not None else None
    if shift is None or shift.op_type != "Add" or len(data_inputs(shift)) != 1:
        return None
    nodes = (shift, clip, node)
    if not is_closed(nodes, node.outputs[0]):
        return None
    return MatchedRegion(kind="HardSigmoid", nodes=nodes, entries=tuple(data_inputs(shift)), output=node.outputs[0])


def _divided_by_six(node: ir.Node) -> ir.Value | None:
    """What `node` divides by six."""
    inputs = data_inputs(node)
    if node.op_type not in {"Div", "Mul"} or len(inputs) != 1 or len(node.inputs) != 2:
        return None
    numbers = [number for value in node.inputs if (number := scalar_constant(value)) is not None]
    wanted = _SIX if node.op_type == "Div" else 1 / _SIX
    divides = len(numbers) == 1 and abs(numbers[0] - wanted) <= 1e-3 * wanted
    return inputs[0] if divides and (node.op_type == "Mul" or node.inputs[0] is inputs[0]) else None


PATTERNS = (
    Pattern(kind="HardSigmoid", match=match, engines=frozenset({"openvino", "tensorrt"}), place=60, is_activation=True),
)
