"""Bias dropped: a parameter that is added was left out.

Asked of products, normalizations and recurrent operators with a bias, and of an Add or Sub of a parameter. Of recurrent ones,
whose biases of the input and of the state lie one behind the other in one parameter, also each half alone.

Source: a class of weight-loading and fusion faults in public reports (docs/explanations.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, read
from parityscope.arithmetic.recurrent import is_recurrent

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

_BIASED = {
    "Conv": 2,
    "ConvTranspose": 2,
    "Gemm": 2,
    "LayerNormalization": 2,
    "BatchNormalization": 2,
    "InstanceNormalization": 2,
    "GroupNormalization": 2,
    "GRU": 3,
    "LSTM": 3,
    "RNN": 3,
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


def _drop_half(second: int) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        array = array_of(node, _BIASED[node.op_type])
        if array is not None:
            halves = np.split(array, 2, -1)
            halves[second] = np.zeros_like(halves[second])
            read(model, node, _BIASED[node.op_type], np.concatenate(halves, -1))

    return rewrite


def _variants(node: ir.Node, _context: Context) -> Iterator[Variant]:
    yield Variant(words="the bias is left out", rewrite=_drop)
    if is_recurrent(node):
        yield Variant(words="the bias of the input is left out", rewrite=_drop_half(0))
        yield Variant(words="the bias of the state is left out", rewrite=_drop_half(1))


HYPOTHESIS = Hypothesis(
    name="bias_dropped", title="Bias dropped", family="semantic", applies=_applies, variants=_variants
)
