"""Normalizations and Softmax in `variances`: expected squared errors in units of (0.4247 u)² times a scale.

* LayerNormalization over n numbers of mean μ and variance v, added in L lanes (`error_model.lanes_chain` for n >> L, which
  is n / (3 L²) + (L + 1) / 3 for s² and n / (2 L) + (L + 4) / 6 for q):
  y² (3 + n / (12 L²) + (L + 1) / 12) + scale² E / v, where E is the expected squared error of μ
* BatchNormalization as engines fold it, y = A x + B, with A, m A and B rounded:  2 (A x)² + (m A)² + B² + y²
* Softmax:  y² (ln² y + (2·3)² + n / (3 L²) + (L + 1) / 3 + 1): the difference to the maximum, at most |ln y|, is
  rounded before exp, n positive terms are added in lanes, the quotient is rounded; LogSoftmax:  2 y² and the rest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, number, required
from parityscope.arithmetic.ulps import ULPS

if TYPE_CHECKING:
    from parityscope.arithmetic._expressions import Expressions

__all__ = ["batch_normalization", "layer_normalization", "softmax"]

_EXP_ULPS = ULPS["Exp"]
# Accumulators of sums along an axis inside one operator: the numbers in a vector register that every x86-64 and ARM64 CPU
# has. Engines use that many or more (16 with AVX-512, 32 on GPUs).
_LANES = 4
_TINY = 2.0**-126  # keeps the logarithm of a probability that underflowed finite; its square is multiplied by 0


def layer_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    data, result, weight = required(node, 0), node.outputs[0], required(node, 1)
    axis = integer(node, "axis", -1)
    rank = len(data.shape) if data.shape is not None else None
    if axis >= 0 and rank is None:  # which axes are left cannot be told: as if it were the last alone
        axis = -1
    axes = tuple(range(axis, 0)) if axis < 0 else tuple(range(axis - (rank or 0), 0))
    terms = work.extent(data, axes)
    inverse = 1.0 / terms if isinstance(terms, float) else work.op("Reciprocal", [terms])
    kept = work.integers(axes)
    mean = work.scaled(work.op("ReduceSum", [data, kept]), inverse)
    mean_of_squares = work.scaled(work.op("ReduceSum", [work.square(data), kept]), inverse)
    mean_squared = work.square(mean)
    spread = work.op("Max", [work.op("Sub", [mean_of_squares, mean_squared]), work.number(0.0)])
    spread = work.op("Add", [spread, work.number(number(node, "epsilon", 1e-5))])
    first = work.linear(terms, scale / (3.0 * _LANES**2), scale * ((_LANES + 1.0) / 3.0 + 1.0))
    second = work.linear(inverse, scale * (_LANES + 4.0) / 6.0, scale / (2.0 * _LANES))
    error = work.op("Add", [work.scaled(mean_squared, first), work.scaled(mean_of_squares, second)])
    shift = work.op("Div", [error, spread])
    factor = work.linear(terms, scale / (12.0 * _LANES**2), scale * (3.0 + (_LANES + 1.0) / 12.0))
    own = work.scaled(work.square(result), factor)
    return work.op("Add", [own, work.op("Mul", [work.square(weight), shift])])


def batch_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    data, gain, bias, mean, spread = (required(node, index) for index in range(5))
    divisor = work.op("Sqrt", [work.op("Add", [spread, work.number(number(node, "epsilon", 1e-5))])])
    slope = work.op("Div", [gain, divisor])
    shift = work.op("Mul", [mean, slope])
    offset = work.op("Sub", [bias, shift])
    constant = work.scaled(work.total(work.square(shift), work.square(offset)), scale)
    zero = work.op("Sub", [mean, mean])
    one = work.op("Add", [zero, work.number(1.0)])
    # The operator itself puts per-channel numbers on the right axis whatever the rank: 2 (A x)² + constant.
    inputs = [work.square(data), work.scaled(work.square(slope), 2.0 * scale), constant, zero, one]
    linear = work.op("BatchNormalization", inputs, [ir.AttrFloat32("epsilon", 0.0)])
    return work.op("Add", [linear, work.scaled(work.square(node.outputs[0]), scale)])


def softmax(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    result = node.outputs[0]
    terms = work.extent(result if result.shape is not None else required(node, 0), (integer(node, "axis", -1),))
    constant = (2.0 * _EXP_ULPS) ** 2 + (_LANES + 1.0) / 3.0 + 1.0
    sums = work.linear(terms, 1.0 / (3.0 * _LANES**2), constant)
    if node.op_type == "LogSoftmax":  # ln y: relative errors become absolute, and y itself is rounded
        fixed = sums if isinstance(sums, ir.Value) else work.number(sums)
        return work.scaled(work.op("Add", [work.scaled(work.square(result), 2.0), fixed]), scale)
    logarithm = work.op("Log", [work.op("Max", [result, work.number(_TINY)])])
    fixed = sums if isinstance(sums, ir.Value) else work.number(sums)
    relative = work.op("Add", [work.square(logarithm), fixed])
    return work.op("Mul", [work.square(result), work.scaled(relative, scale)])
