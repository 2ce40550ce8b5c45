"""HardSwish: `x · Clip(x + 3, 0, 6) / 6`, the division anywhere, or `x · HardSigmoid(x)` (arXiv:1905.02244)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.arithmetic.fusion.patterns._diamonds import include_factor, match_diamond

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

__all__ = ["PATTERNS", "match"]

_NODES = {"Add", "Clip", "Div", "HardSigmoid", "Mul"}


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The HardSwish whose product of two things is `node`."""
    found = match_diamond(
        node,
        order,
        "HardSwish",
        _NODES,
        lambda ops: ops.count("Clip") + ops.count("HardSigmoid") == 1 and len(ops) <= 5,
    )
    return None if found is None else include_factor(found, (1 / 6,))


PATTERNS = (
    Pattern(kind="HardSwish", match=match, engines=frozenset({"openvino", "tensorrt"}), place=50, is_activation=True),
)
