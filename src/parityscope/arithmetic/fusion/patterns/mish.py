"""Mish: `x · Tanh(Softplus(x))`, Softplus also as `Log(1 + Exp(x))` (D. Misra, arXiv:1908.08681)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.arithmetic.fusion.patterns._diamonds import match_diamond

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

__all__ = ["PATTERNS", "match"]

_NODES = {"Add", "Exp", "Log", "Mul", "Softplus", "Tanh"}


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The Mish that ends in `node`."""
    return match_diamond(
        node,
        order,
        "Mish",
        _NODES,
        lambda found: found.count("Tanh") == 1 and {"Softplus", "Log"} & set(found) != set(),
    )


PATTERNS = (
    Pattern(kind="Mish", match=match, engines=frozenset({"openvino", "tensorrt"}), place=40, is_activation=True),
)
