"""Activation before bias: a fused kernel applied the activation first and added the bias afterwards.

Asked of an activation that reads, in the same region, a Conv, ConvTranspose or Gemm with a bias, or an Add of a
parameter: y = act(x W) + b in place of act(x W + b).

Source: a class of epilogue-fusion faults in public reports on compilers (docs/explanations.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import number
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, behind, constant, insert, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_ACTIVATIONS = frozenset(
    {"Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Tanh"}
)
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm"})


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type in _ACTIVATIONS and _bias(node) is not None


def _bias(node: ir.Node) -> tuple[ir.Node, int] | None:
    """The node before that adds a bias, and which of its inputs that is."""
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if before is None:
        return None
    if before.op_type in _PRODUCTS and array_of(before, 2) is not None:
        return before, 2
    if before.op_type == "Add":
        for index in (0, 1):
            if array_of(before, index) is not None:
                return before, index
    return None


def _swap(model: ir.Model, node: ir.Node, _: float) -> None:
    found = _bias(node)
    if found is None:
        return
    before, index = found
    bias = array_of(before, index)
    if bias is None:
        return
    read(model, before, index, np.zeros_like(bias))
    if before.op_type == "Gemm":
        bias = bias * np.float32(number(before, "beta", 1.0))
    value = constant(model, bias, f"{node.outputs[0].name}::bias")
    if before.op_type in {"Conv", "ConvTranspose"}:
        weight = array_of(before, 1)
        rank = 2 if weight is None else weight.ndim - 2
        shape = constant(model, np.array([-1, *[1] * rank], np.int64), f"{node.outputs[0].name}::shape")
        value = insert(node, "Reshape", [value, shape])
    behind(model, node, "Add", [value])


def _variants(_node: ir.Node, _context: Context) -> Iterator[Variant]:
    yield Variant(words="the activation is applied before the bias is added", rewrite=_swap)


HYPOTHESIS = Hypothesis(
    name="activation_before_bias",
    title="Activation before bias",
    family="semantic",
    applies=_applies,
    variants=_variants,
)
