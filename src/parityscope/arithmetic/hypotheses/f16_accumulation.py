"""FP16 accumulation: products take FP16 operands and add them up in FP16.

The fastest mode of many GPUs. The error depends on the order; sequential blocks of 1, 4, 8 and 16 terms are predicted,
each block summed exactly, the accumulator rounded to nearest even after it.

Source: NVIDIA PTX ISA, mma instructions with .f16 accumulators; Fasi et al., PeerJ CS 330, 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._contraction import accumulated
from parityscope.arithmetic.hypotheses._rounding import has_product, output_rounding, rounded
from parityscope.arithmetic.rounding import round_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_WIDTHS = (1, 4, 8, 16)  # terms that are added at once


def _half(total: np.ndarray) -> np.ndarray:
    return round_to(total, FORMATS["f16"])


def _variants(_node: ir.Node, _context: Context) -> Iterator[Variant]:
    for width in _WIDTHS:
        for output in (None, output_rounding("f16")):
            yield Variant(
                words=f"an FP16 accumulator, {width} terms at a time{', and FP16 output' if output else ''}",
                operands=rounded("f16"),
                accumulate=accumulated(width, _half),
                output=output,
            )


HYPOTHESIS = Hypothesis(
    name="f16_accumulation", title="FP16 accumulation", family="arithmetic", applies=has_product, variants=_variants
)
