"""The expected squared error of one node's FP32 evaluation, elementwise, as a part of the graph: `error_model` in ONNX.

In: a node and its output y. Out: a value of y's shape (or one that broadcasts to it), in units of (0.4247 u)² times a
scale that the caller gives. With n terms in a sum and q the sum of their squares (the same node on squared inputs):

* Conv, ConvTranspose, Gemm, MatMul, Einsum, ReduceSum:  (n + 1) (2 y² + q) / 6. A bias is added to the accumulator.
* added to those of reductions, y² (m n)² / 9 for the share m of elements that repeat their neighbour (`repeated`)
* ReduceMean, AveragePool, GlobalAveragePool, with m the mean of the squares:  y² ((n + 1) / 3 + 1) + m (n + 1) / (6 n)
* ReduceSumSquare, ReduceL1 (sums of positive terms):  y² (n + 1) / 3;  ReduceL2 (half the relative error, one
  rounding more):  y² ((n + 1) / 12 + 1)
* normalizations, Softmax and LogSoftmax: `_normalizations`
* everything elementwise:  (2 B)² y² for a function that is right to B units in the last place (`ulps`)
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers, required, text
from parityscope.arithmetic._normalizations import (
    batch_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
    rms_normalization,
    softmax,
)
from parityscope.arithmetic.ulps import EXACT, ulps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parityscope.arithmetic._expressions import Expressions

    Rule = Callable[[Expressions, ir.Node, float], ir.Value]

__all__ = ["variance"]


def variance(work: Expressions, node: ir.Node, scale: float) -> ir.Value | None:
    """The expected squared error of each element of the node's first output, in units of (0.4247 u)² · `scale`.

    None for operators that make none.
    """
    if node.op_type in EXACT:
        return None
    rule = _RULES.get(node.op_type)
    return rule(work, node, scale) if rule else _elementwise(work, node, scale)


def _elementwise(work: Expressions, node: ir.Node, scale: float) -> ir.Value | None:
    ulps = ulps_of(node)
    if ulps is None:
        return None
    return work.scaled(work.square(node.outputs[0]), (2.0 * ulps) ** 2 * scale)


def _conv(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    return _product(work, node, work.elements_for_each(required(node, 1), 0), scale)


def _conv_transpose(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    taps = work.elements_for_each(required(node, 1), 1)
    # Groups share the input's channels; with a stride, so many elements share the taps of one input element.
    shared = prod(integers(node, "strides", ())) * integer(node, "group", 1)
    return _product(work, node, work.linear(taps, 1.0 / shared, 0.0), scale)


def _matmul(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    return _product(work, node, work.extent(required(node, 0), (-1,)), scale)


def _gemm(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    axis = 0 if integer(node, "transA", 0) else 1
    return _product(work, node, work.extent(required(node, 0), (axis,)), scale)


def _einsum(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    inputs, arrow, result = text(node, "equation", "").replace(" ", "").partition("->")
    labels = inputs.split(",")
    if not arrow:  # what occurs once is kept
        joined = inputs.replace(",", "").replace(".", "")
        result = "".join(label for label in joined if joined.count(label) == 1)
    terms: float | ir.Value = 1.0
    seen = set(result)
    for position, axes in enumerate(labels):
        head, dots, _ = axes.partition("...")
        for index, label in enumerate(axes.replace(".", "")):
            if label in seen:
                continue
            seen.add(label)
            axis = index if not dots or index < len(head) else index - len(axes.replace(".", ""))
            extent = work.extent(required(node, position), (axis,))
            terms = (
                terms * extent
                if isinstance(terms, float) and isinstance(extent, float)
                else _times(work, terms, extent)
            )
    return _product(work, node, terms, scale, operands=len(labels))


def _product(work: Expressions, node: ir.Node, terms: float | ir.Value, scale: float, *, operands: int = 2) -> ir.Value:
    """(n + 1) (2 y² + q) / 6; the factor goes into the smallest operand, the second one."""
    factor = work.linear(terms, scale / 6.0, scale / 6.0)
    squares = [work.square(required(node, index)) for index in range(operands)]
    last = min(1, operands - 1)
    squares[last] = work.scaled(squares[last], factor)
    terms_squared = work.op(node.op_type, squares, _squared_attributes(node))
    twice = work.linear(factor, 2.0, 0.0) if isinstance(factor, float) else work.scaled(factor, 2.0)
    part = work.scaled(node.outputs[0], work.root(twice))
    return work.op("Add", [work.op("Mul", [part, part]), terms_squared])


def _reduce_sum(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    data, result = required(node, 0), node.outputs[0]
    terms = work.ratio_of_sizes(data, result)
    squares = work.op(node.op_type, [work.square(data), *node.inputs[1:]], _attributes(node))
    both = work.op("Add", [work.scaled(work.square(result), 2.0), squares])
    random = work.scaled(both, work.linear(terms, scale / 6.0, scale / 6.0))
    return work.op("Add", [random, work.op("Mul", [work.square(result), _repeated(work, data, terms, scale)])])


def _mean(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    data, result = required(node, 0), node.outputs[0]
    kernel = integers(node, "kernel_shape", ())
    terms = float(prod(kernel)) if kernel else work.ratio_of_sizes(data, result)
    squares = work.op(node.op_type, [work.square(data), *node.inputs[1:]], _attributes(node))
    random = _of_mean(work, work.square(result), squares, terms, scale)
    return work.op("Add", [random, work.op("Mul", [work.square(result), _repeated(work, data, terms, scale)])])


def _repeated(work: Expressions, data: ir.Value, terms: float | ir.Value, scale: float) -> ir.Value:
    """(m n)² / 9 for the share m of elements that are not zero and equal their neighbour on the last axis."""
    flag, whole = ir.DataType.BOOL, ir.DataType.INT64
    last, far = work.integers([-1]), work.integers([2**62])
    ahead = work.op("Slice", [data, work.integers([1]), far, last])
    behind = work.op("Slice", [data, work.integers([0]), last, last])
    same = work.op("Equal", [ahead, behind], dtype=flag)
    present = work.op("Cast", [ahead], [ir.AttrInt64("to", int(flag))], dtype=flag)
    counted = work.op(
        "Cast", [work.op("And", [same, present], dtype=flag)], [ir.AttrInt64("to", int(ir.DataType.FLOAT))]
    )
    total = work.op("ReduceSum", [counted], [ir.AttrInt64("keepdims", 0)])
    count = work.op("Size", [data], dtype=whole)
    share = work.op("Div", [total, work.op("Cast", [count], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])])
    repeats = work.scaled(share, terms)
    return work.scaled(work.op("Mul", [repeats, repeats]), scale / 9.0)


def _of_mean(
    work: Expressions, mean_squared: ir.Value, mean_of_squares: ir.Value, terms: float | ir.Value, scale: float
) -> ir.Value:
    """y² ((n + 1) / 3 + 1) + m (n + 1) / (6 n)."""
    first = work.scaled(mean_squared, work.linear(terms, scale / 3.0, scale * 4.0 / 3.0))
    inverse = 1.0 / terms if isinstance(terms, float) else work.op("Reciprocal", [terms])
    return work.op("Add", [first, work.scaled(mean_of_squares, work.linear(inverse, scale / 6.0, scale / 6.0))])


def _positive_sum(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    result = node.outputs[0]
    terms = work.ratio_of_sizes(required(node, 0), result)
    return work.scaled(work.square(result), work.linear(terms, scale / 3.0, scale / 3.0))


def _norm(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    result = node.outputs[0]
    terms = work.ratio_of_sizes(required(node, 0), result)
    return work.scaled(work.square(result), work.linear(terms, scale / 12.0, scale * 13.0 / 12.0))


def _times(work: Expressions, left: float | ir.Value, right: float | ir.Value) -> ir.Value:
    operands = [work.number(each) if isinstance(each, float) else each for each in (left, right)]
    return work.op("Mul", operands)


def _attributes(node: ir.Node) -> list[ir.Attr]:
    return list(node.attributes.values())


def _squared_attributes(node: ir.Node) -> list[ir.Attr]:
    """The attributes of a product on squared inputs: Gemm's factor is squared too."""
    return [
        ir.AttrFloat32("alpha", each.as_float() ** 2) if node.op_type == "Gemm" and each.name == "alpha" else each
        for each in node.attributes.values()
    ]


_RULES: Mapping[str, Rule] = {
    "AveragePool": _mean,
    "BatchNormalization": batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _mean,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax,
    "MatMul": _matmul,
    "ReduceL1": _positive_sum,
    "ReduceL2": _norm,
    "ReduceMean": _mean,
    "ReduceSum": _reduce_sum,
    "ReduceSumSquare": _positive_sum,
    "RMSNormalization": rms_normalization,
    "Softmax": softmax,
}
