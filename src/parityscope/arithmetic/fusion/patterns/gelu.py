"""GELU: `x/2 · (1 + Erf(x/√2))`, or its approximation `x/2 · (1 + Tanh(√(2/π) (x + 0.044715 x³)))`.

The factor 1/2 stands before, between or behind the two factors; all three are found (D. Hendrycks and K. Gimpel,
"Gaussian Error Linear Units", arXiv:1606.08415, section 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import scalar_constant
from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.arithmetic.fusion.patterns._diamonds import include_factor, match_diamond

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

_ERF = {"Add", "Div", "Erf", "Mul"}
_TANH = {"Add", "Mul", "Pow", "Tanh"}


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The GELU whose last product of two things is `node`, its cube as Pow, and 1/2 outside `1 + Erf` or `1 + Tanh`."""
    found = _match_any(node, order)
    return None if found is None or _halves_inside(found) else found


def match_inner(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The GELU whose last product of two things is `node`, `x · (1/2 · (1 + Erf))`; the cube as Pow."""
    found = _match_any(node, order)
    return found if found is not None and _halves_inside(found) else None


def match_products(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The GELU whose last product of two things is `node`, its cube written as products."""
    # One Add for x + 0.044715 x³, one for 1 + Tanh.
    found = match_diamond(
        node, order, "Gelu", _TANH - {"Pow"}, lambda ops: ops.count("Tanh") == 1 and ops.count("Add") == 2
    )
    return None if found is None else include_factor(found, (0.5,))


def _match_any(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    found = match_diamond(node, order, "Gelu", _ERF, lambda ops: ops.count("Erf") == 1 and "Add" in ops)
    if found is None:
        found = match_diamond(node, order, "Gelu", _TANH, lambda ops: "Tanh" in ops and "Pow" in ops)
    return None if found is None else include_factor(found, (0.5,))


def _halves_inside(region: MatchedRegion) -> bool:
    for node in region.nodes:
        made = [value.producer() for value in node.inputs if value is not None and scalar_constant(value) is None]
        halves = node.op_type == "Mul" and any(scalar_constant(value) == 0.5 for value in node.inputs)
        if halves and len(made) == 1 and made[0] is not None and made[0].op_type == "Add" and made[0] in region.nodes:
            return True
    return False


PATTERNS = (
    Pattern(
        kind="Gelu",
        match=match,
        engines=frozenset({"onnxruntime-cuda", "openvino", "tensorrt"}),
        place=30,
        is_activation=True,
    ),
    Pattern(
        kind="GeluInner", match=match_inner, engines=frozenset({"openvino", "tensorrt"}), place=31, is_activation=True
    ),
    Pattern(kind="GeluOfProducts", match=match_products, engines=frozenset({"tensorrt"}), place=32, is_activation=True),
)
