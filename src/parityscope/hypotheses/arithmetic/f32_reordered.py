"""FP32 in another order: the same function in FP32, its sums taken in another order.

The order of an engine is not known, so its error cannot be predicted element by element; only its size can. This
hypothesis predicts no error at all and is accepted where what the layer introduced stays within the FP32 noise floor in
every channel.

Source: the second-moment model of accumulation (docs/explanations.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import applies_always

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    yield Variant(words="FP32, in another order of summation")


HYPOTHESIS = Hypothesis(
    name="f32_reordered",
    title="FP32 in another order",
    applies=applies_always,
    variants=_list_variants,
)
