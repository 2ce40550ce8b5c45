"""FP16 accumulation: products take FP16 operands and add them up in FP16.

The fastest mode of many GPUs. The error depends on the order; sequential blocks of 1, 4, 8 and 16 terms are predicted,
each block summed exactly, the accumulator rounded to nearest even after it. In an order that nobody knows only the size
of the error can be predicted: by the second moments of the partial sums in a random order, after inputs and parameters
that are stored in FP16. That is accepted by magnitude and only where the candidate computes in FP16: of depthwise
convolutions of ONNX Runtime's CUDA provider on an H200, the sequential orders explained 76 to 92 % of the error and no more.
Recurrent operators are computed in FP16 altogether (cuDNN as ONNX Runtime calls it), 1, 2 or 4 terms at a time.

Source: NVIDIA PTX ISA, mma instructions with .f16 accumulators; Fasi et al., PeerJ CS 330, 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.rounding import round_to
from parityscope.hypotheses.arithmetic import Accumulator, Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._contraction import accumulate_in_blocks
from parityscope.hypotheses.arithmetic._rounding import has_product, output_rounding, rounding_to
from parityscope.hypotheses.arithmetic._storage import has_recurrence, sums_rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import onnx_ir as ir

_WIDTHS = (1, 4, 8, 16)  # terms that are added at once


def _round_to_half(total: np.ndarray) -> np.ndarray:
    return round_to(total, FORMATS["f16"])


def _applies_to(node: ir.Node, graph: ir.Graph) -> bool:
    return has_product(node, graph) or has_recurrence(graph)


def _list_variants(node: ir.Node, context: RegionContext) -> Iterator[Variant]:
    if has_recurrence(context.model.graph):
        yield from sums_rounded("f16")
    if not has_product(node, context.model.graph):
        return
    for width in _WIDTHS:
        for output in (None, output_rounding("f16")):
            yield Variant(
                words=f"an FP16 accumulator, {width} terms at a time{', and FP16 output' if output else ''}",
                operands=rounding_to("f16"),
                accumulate=accumulate_in_blocks(width, _round_to_half),
                output=output,
            )
    yield Variant(
        words="an FP16 accumulator, in an order that is not known: by its size",
        stored=rounding_to("f16"),
        output=output_rounding("f16"),
        accumulator=Accumulator(unit=FORMATS["f16"].unit_roundoff, block=1, truncates=False),
        by_size=True,
    )


HYPOTHESIS = Hypothesis(
    name="f16_accumulation",
    title="FP16 accumulation",
    applies=_applies_to,
    variants=_list_variants,
)
