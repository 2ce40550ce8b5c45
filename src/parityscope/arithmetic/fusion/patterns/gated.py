"""Gated activations, x times a function of x: SiLU, Mish and HardSwish.

SiLU (Swish) is `x · Sigmoid(βx)`, as PyTorch (β = 1) and Paddle (a Mul by 1) export it; Mish `x · Tanh(Softplus(x))`, Softplus
also as `Log(1 + Exp(x))` (D. Misra, arXiv:1908.08681); HardSwish `x · Clip(x + 3, 0, 6) / 6`, the division anywhere, or
`x · HardSigmoid(x)` (arXiv:1905.02244).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.arithmetic.fusion.patterns._diamonds import include_factor, match_diamond

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.matching import MatchedRegion

_SILU = {"Mul", "Sigmoid"}
_MISH = {"Add", "Exp", "Log", "Mul", "Softplus", "Tanh"}
_HARD_SWISH = {"Add", "Clip", "Div", "HardSigmoid", "Mul"}


def _match_silu(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    return match_diamond(node, order, "Silu", _SILU, lambda ops: ops.count("Sigmoid") == 1 and len(ops) <= 3)


def _match_mish(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    softplus = {"Softplus", "Log"}
    return match_diamond(
        node, order, "Mish", _MISH, lambda ops: ops.count("Tanh") == 1 and not softplus.isdisjoint(ops)
    )


def _match_hard_swish(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    found = match_diamond(
        node,
        order,
        "HardSwish",
        _HARD_SWISH,
        lambda ops: ops.count("Clip") + ops.count("HardSigmoid") == 1 and len(ops) <= 5,
    )
    return None if found is None else include_factor(found, (1 / 6,))


_ENGINES = frozenset({"openvino", "tensorrt"})
PATTERNS = (
    Pattern(kind="Mish", match=_match_mish, engines=_ENGINES, place=40, is_activation=True),
    Pattern(kind="HardSwish", match=_match_hard_swish, engines=_ENGINES, place=50, is_activation=True),
    Pattern(kind="Silu", match=_match_silu, engines=_ENGINES | {"onnxruntime-cuda"}, place=70, is_activation=True),
)
