"""TF32 inputs, rounded to nearest: products take FP32 operands rounded to 10 fraction bits.

What cuBLAS does (measured on an NVIDIA H200: equal to this simulation to 1.8e-6 while the error is 2.9e-4). FP16 operands
have the same significand: where nothing leaves FP16's range the two cannot be told apart by rounding. Recurrent operators
multiply the state of every step; it is rounded there too.

Source: NVIDIA A100 Tensor Core GPU Architecture, whitepaper 1.0, 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.hypotheses.arithmetic import Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._folding import can_be_folded, fold_all
from parityscope.hypotheses.arithmetic._rounding import FOLDED, TENSOR_CORES, has_product, rounding_to
from parityscope.hypotheses.arithmetic._storage import has_recurrence, steps_multiplied

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


def _applies_to(node: ir.Node, graph: ir.Graph) -> bool:
    return has_product(node, graph) or has_recurrence(graph)


def _list_variants(node: ir.Node, context: RegionContext) -> Iterator[Variant]:
    if has_recurrence(context.model.graph):
        yield steps_multiplied("tf32")
    if not has_product(node, context.model.graph):
        return
    yield Variant(
        words="what is multiplied is rounded to TF32, to nearest",
        operands=rounding_to("tf32"),
        accumulator=TENSOR_CORES,
    )
    if can_be_folded(context.model.graph):
        yield Variant(
            words=f"what is multiplied is rounded to TF32, to nearest, {FOLDED}",
            rewrite=fold_all,
            operands=rounding_to("tf32"),
            accumulator=TENSOR_CORES,
        )


HYPOTHESIS = Hypothesis(
    name="tf32_nearest",
    title="TF32 inputs, rounded to nearest",
    applies=_applies_to,
    variants=_list_variants,
)
