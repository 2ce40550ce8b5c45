"""BatchNormalization's statistics exchanged, missing, or those of the batch.

Two of scale, bias, mean and variance exchanged; the mean or the variance ignored; the variance taken for a standard
deviation; the statistics of this very batch in place of the running ones (a model exported in training mode).

Source: ONNX operator BatchNormalization.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, put, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

_NAMES = {1: "scale", 2: "bias", 3: "mean", 4: "variance"}


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type == "BatchNormalization" and all(array_of(node, index) is not None for index in _NAMES)


def _variants(_node: ir.Node, context: Context) -> Iterator[Variant]:
    for first, second in combinations(_NAMES, 2):
        yield Variant(words=f"{_NAMES[first]} and {_NAMES[second]} are exchanged", rewrite=_exchanged(first, second))
    yield Variant(words="the mean is ignored", rewrite=_filled(3, 0.0))
    yield Variant(words="the variance is ignored", rewrite=_filled(4, 1.0))
    yield Variant(words="the variance is taken for a standard deviation", rewrite=_squared)
    if context.model.opset_imports.get("", 0) >= 14:
        yield Variant(words="the statistics of the batch are used", rewrite=_training)


def _exchanged(first: int, second: int) -> Rewrite:
    def rewrite(_: ir.Model, node: ir.Node, __: float) -> None:
        one, other = node.inputs[first], node.inputs[second]
        node.replace_input_with(first, other)
        node.replace_input_with(second, one)

    return rewrite


def _filled(index: int, number: float) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        array = array_of(node, index)
        if array is not None:
            read(model, node, index, np.full_like(array, number))

    return rewrite


def _squared(model: ir.Model, node: ir.Node, _: float) -> None:
    array = array_of(node, 4)
    if array is not None:
        with np.errstate(over="ignore"):
            read(model, node, 4, np.square(array))


def _training(_: ir.Model, node: ir.Node, __: float) -> None:
    put(node, "training_mode", 1)
    node.resize_outputs(3)
    for position, name in ((1, "mean"), (2, "variance")):
        node.outputs[position].name = f"{node.outputs[0].name}::{name}"


HYPOTHESIS = Hypothesis(
    name="batch_normalization",
    title="BatchNormalization's statistics",
    family="semantic",
    applies=_applies,
    variants=_variants,
)
