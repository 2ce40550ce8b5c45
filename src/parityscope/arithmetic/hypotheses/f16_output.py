"""FP16 output: a layer computed in FP32 and only its result was stored in FP16.

Normalizations and pointwise layers in a FP16 engine: their inputs lie on FP16's grid already, the arithmetic is FP32.

Source: IEEE 754-2019 binary16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._rounding import always, output_rounding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]


def _variants(_node: ir.Node, _context: Context) -> Iterator[Variant]:
    yield Variant(words="only the output is stored in FP16", output=output_rounding("f16"))


HYPOTHESIS = Hypothesis(name="f16_output", title="FP16 output", family="arithmetic", applies=always, variants=_variants)
