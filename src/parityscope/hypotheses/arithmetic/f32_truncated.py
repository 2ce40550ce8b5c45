"""FP32 accumulation toward zero: the accumulator of a product drops bits instead of rounding.

Tensor cores add blocks of products to an accumulator that truncates; the bias grows with the length of the sum. It
is predicted for sequential blocks of 1, 4, 8 and 16 terms and FP32 operands.

Source: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 330, 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._contraction import accumulate_in_blocks
from parityscope.hypotheses.arithmetic._rounding import has_product

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import onnx_ir as ir

_WIDTHS = (1, 4, 8, 16)  # terms that are added at once


def _truncate_to_f32(total: np.ndarray) -> np.ndarray:
    return round_to(total, FORMATS["f32"], mode="toward-zero")


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    for width in _WIDTHS:
        yield Variant(
            words=f"an FP32 accumulator that truncates, {width} terms at a time",
            accumulate=accumulate_in_blocks(width, _truncate_to_f32),
        )


HYPOTHESIS = Hypothesis(
    name="f32_truncated",
    title="FP32 accumulation toward zero",
    applies=has_product,
    variants=_list_variants,
)
