"""TF32 inputs, truncated: products drop the last 13 fraction bits of their FP32 operands.

What the matrix instruction itself does to operands that software did not round before. The error is biased and about
2.6 times that of rounding to nearest.

Source: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 330, 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import TENSOR_CORES, has_product, rounding_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    yield Variant(
        words="what is multiplied is cut to TF32, toward zero",
        operands=rounding_to("tf32", mode="toward-zero"),
        accumulator=TENSOR_CORES,
    )


HYPOTHESIS = Hypothesis(
    name="tf32_truncated",
    title="TF32 inputs, truncated",
    applies=has_product,
    variants=_list_variants,
)
