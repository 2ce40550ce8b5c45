"""FP8 E4M3: what is multiplied was rounded to FP8 E4M3.

As it is, scaled so that the largest magnitude of each tensor becomes 448, or with a scale for every output channel of the
weights. Products accumulate in FP32; the output is kept in FP32, BF16 or FP16. Where no product is in the region, its
inputs and output are stored in FP8 E4M3.

Source: OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023; Micikevicius et al., arXiv 2209.05433.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._rounding import (
    always,
    has_product,
    operands_scaled,
    output_rounding,
    rounded,
    storage_variants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    if not has_product(node, context.model.graph):
        yield from storage_variants("f8e4m3", context.model.graph)
        return
    scalings = {
        "unscaled": rounded("f8e4m3", overflow="saturate"),
        "scaled per tensor": operands_scaled("f8e4m3", by_channel=False),
        "weights scaled per channel": operands_scaled("f8e4m3", by_channel=True),
    }
    for words, transform in scalings.items():
        for output in (None, output_rounding("f16"), output_rounding("bf16")):
            stored = f", output stored in {output.name}" if output else ""
            yield Variant(words=f"FP8 E4M3 operands, {words}{stored}", operands=transform, output=output)


HYPOTHESIS = Hypothesis(name="f8e4m3", title="FP8 E4M3", family="arithmetic", applies=always, variants=_variants)
