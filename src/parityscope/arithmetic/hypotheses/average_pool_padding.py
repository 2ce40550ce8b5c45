"""AveragePool counts its padding, or does not.

Whether zeros outside the image count in the denominator: `count_include_pad` 0 for 1 and the reverse. Inside the image
nothing changes, so the error lies at the border alone.

Source: ONNX operator AveragePool; PyTorch counts by default, ONNX and TensorFlow do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type == "AveragePool"


def _flip(_: ir.Model, node: ir.Node, __: float) -> None:
    put(node, "count_include_pad", 1 - integer(node, "count_include_pad", 0))


def _variants(node: ir.Node, _context: Context) -> Iterator[Variant]:
    counts = integer(node, "count_include_pad", 0)
    yield Variant(words="padding is not counted" if counts else "padding is counted", rewrite=_flip)


HYPOTHESIS = Hypothesis(
    name="average_pool_padding",
    title="AveragePool's count of padding",
    family="semantic",
    applies=_applies,
    variants=_variants,
)
