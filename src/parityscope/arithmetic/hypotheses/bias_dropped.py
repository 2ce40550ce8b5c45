"""Bias dropped: a parameter that is added was left out.

Asked of products and normalizations with a bias, and of an Add or Sub of a parameter.

Source: a class of weight-loading and fusion faults in public reports (docs/explanations.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_BIASED = {
    "Conv": 2,
    "ConvTranspose": 2,
    "Gemm": 2,
    "LayerNormalization": 2,
    "BatchNormalization": 2,
    "InstanceNormalization": 2,
    "GroupNormalization": 2,
}


def _place(node: ir.Node) -> int | None:
    """Which input is the bias."""
    if node.op_type in _BIASED:
        index = _BIASED[node.op_type]
        return index if array_of(node, index) is not None else None
    if node.op_type in {"Add", "Sub"}:
        indices = (1,) if node.op_type == "Sub" else (0, 1)
        return next((index for index in indices if array_of(node, index) is not None), None)
    return None


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return _place(node) is not None


def _drop(model: ir.Model, node: ir.Node, _: float) -> None:
    index = _place(node)
    array = None if index is None else array_of(node, index)
    if index is not None and array is not None:
        read(model, node, index, np.zeros_like(array))


def _variants(_node: ir.Node, _context: Context) -> Iterator[Variant]:
    yield Variant(words="the bias is left out", rewrite=_drop)


HYPOTHESIS = Hypothesis(
    name="bias_dropped", title="Bias dropped", family="semantic", applies=_applies, variants=_variants
)
