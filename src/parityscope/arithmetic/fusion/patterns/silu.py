"""SiLU (Swish): `x · Sigmoid(βx)`, as PyTorch (β = 1) and Paddle (a Mul by 1) export it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.arithmetic.fusion.patterns._diamonds import match_diamond

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

__all__ = ["PATTERNS", "match"]

_NODES = {"Mul", "Sigmoid"}


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The SiLU that ends in `node`."""
    return match_diamond(node, order, "Silu", _NODES, lambda found: found.count("Sigmoid") == 1 and len(found) <= 3)


PATTERNS = (
    Pattern(
        kind="Silu",
        match=match,
        engines=frozenset({"onnxruntime-cuda", "openvino", "tensorrt"}),
        place=70,
        is_activation=True,
    ),
)
