"""LayerNormalization and RMSNormalization written as single operators.

`(x - mean) / Sqrt(mean((x - mean)²) + ε)` and `x / Sqrt(mean(x²) + ε)`: the square as Pow or as Mul of a value with
itself, the division also as product with a Reciprocal or a negative Pow. The scale and the shift that usually follow
are not part of the region: engines treat them each in their own way (`affine_nodes` finds them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import MatchedRegion, data_inputs, dominated_nodes, is_closed, only_use
from parityscope.arithmetic.fusion.patterns import Pattern

if TYPE_CHECKING:
    import onnx_ir as ir

_NODES = frozenset({"Add", "Cast", "Div", "Mul", "Pow", "ReduceMean", "Reciprocal", "Sqrt", "Sub"})


def match_layer(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The LayerNormalization whose division (or product) is `node`."""
    found = _root_mean_square(node, order)
    centring = None if found is None else found[1].producer()
    if found is None or centring is None or centring.op_type != "Sub":
        return None
    above = dominated_nodes(centring, _NODES, order)
    if above is None or [each.op_type for each in above[0]].count("ReduceMean") != 1:
        return None
    return _closed_region("LayerNormalization", (*above[0], *found[0]), above[1], node.outputs[0])


def match_rms(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The RMSNormalization whose division (or product) is `node`."""
    found = _root_mean_square(node, order)
    return None if found is None else _closed_region("RMSNormalization", *found, node.outputs[0])


def affine_nodes(output: ir.Value) -> tuple[ir.Node, ...]:
    """The product with a constant and the addition of one that follow, as far as they do."""
    found: list[ir.Node] = []
    for op_type in ("Mul", "Add"):
        use = only_use(output)
        if use is None or use[0].op_type != op_type or len(data_inputs(use[0])) != 1:
            break
        found.append(use[0])
        output = use[0].outputs[0]
    return tuple(found)


def _root_mean_square(node: ir.Node, order: dict[ir.Node, int]) -> tuple[tuple[ir.Node, ...], ir.Value] | None:
    """The nodes of `x / Sqrt(mean(x²) + ε)` down to x, and x; x is centred already in a LayerNormalization."""
    if node.op_type not in {"Div", "Mul"} or len(data_inputs(node)) != 2:
        return None
    found = dominated_nodes(node, _NODES, order)
    if found is None:
        return None
    ops = [each.op_type for each in found[0]]
    rooted = "Sqrt" in ops or ops.count("Pow") == 2
    return found if ops.count("ReduceMean") == 1 and rooted and "Sub" not in ops else None


def _closed_region(kind: str, nodes: tuple[ir.Node, ...], entry: ir.Value, output: ir.Value) -> MatchedRegion | None:
    return MatchedRegion(kind=kind, nodes=nodes, entries=(entry,), output=output) if is_closed(nodes, output) else None


PATTERNS = (
    Pattern(
        kind="LayerNormalization",
        match=match_layer,
        engines=frozenset({"onnxruntime-cuda", "openvino", "tensorrt"}),
        place=10,
    ),
    Pattern(
        kind="RMSNormalization",
        match=match_rms,
        engines=frozenset({"onnxruntime-cuda", "openvino", "tensorrt"}),
        place=11,
    ),
)
