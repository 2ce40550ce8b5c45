"""BF16 inputs: what a layer reads was rounded to BF16, its result kept in FP32.

Either only what is multiplied (tensor cores that take BF16 and accumulate and return FP32), or every input and
parameter (weights and activations stored in BF16). Numbers are rounded to nearest even.

Source: Intel, "BFLOAT16 - Hardware Numerics Definition", 2018; the FP32 accumulator: NVIDIA PTX ISA, mma instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._rounding import always, inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]


def _variants(_node: ir.Node, context: Context) -> Iterator[Variant]:
    yield from inputs_of("bf16", context.model.graph)


HYPOTHESIS = Hypothesis(
    name="bf16_inputs", title="BF16 inputs", family="arithmetic", applies=always, variants=_variants
)
