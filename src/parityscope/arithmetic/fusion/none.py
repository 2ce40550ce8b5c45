"""No fusion: every operator is a kernel of its own, in the precision asked for.

What a program of single operators does (ONNX's own semantics, eager execution, a debugger that marks every tensor). Of
an engine that fuses it is an upper estimate: up to 3.4 times the error of LayerNormalization networks in bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusionProfile

if TYPE_CHECKING:
    import onnx_ir as ir


def _predict_fusion(model: ir.Model, precision: str) -> None:
    """Nothing is fused."""


PROFILE = FusionProfile(name="none", title="Every operator rounds", predict=_predict_fusion)
