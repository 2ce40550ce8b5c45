"""Normalizations and Softmax in `variances`: expected squared errors in units of (0.4247 u)² times a scale.

* LayerNormalization over n numbers of mean μ and variance v, added in L lanes (`error_model.lanes_chain` for n >> L, which
  is n / (3 L²) + (L + 1) / 3 for s² and n / (2 L) + (L + 4) / 6 for q):
  y² (3 + n / (12 L²) + (L + 1) / 12) + scale² E / v, where E is the expected squared error of μ
* InstanceNormalization and GroupNormalization: the same over what is behind the channel or in the group, of whose scales
  the mean square is taken. The standard defines the latter's variance as m - μ², with m the mean of the squares, and ONNX
  Runtime computes it so: 5 m² (n / (3 L²) + (L + 1) / 3 + 1) more on v, and y² / (4 v²) times that on the result
* RMSNormalization, which subtracts nothing:  y² (2 + n / (12 L²) + (L + 1) / 12)
* BatchNormalization as engines fold it, y = A x + B, with A, m A and B rounded:  2 (A x)² + (m A)² + B² + y²
* Softmax:  y² (ln² y + (2·3)² + n / (3 L²) + (L + 1) / 3 + 1): the difference to the maximum, at most |ln y|, is
  rounded before exp, n positive terms are added in lanes, the quotient is rounded; LogSoftmax:  2 y² and the rest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, number, required
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.arithmetic.ulps import ULPS

if TYPE_CHECKING:
    from parityscope.arithmetic._expressions import Expressions

__all__ = [
    "batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "rms_normalization",
    "softmax",
]

_EXP_ULPS = ULPS["Exp"]
# Accumulators of sums along an axis inside one operator: the numbers in a vector register that every x86-64 and ARM64 CPU
# has. Engines use that many or more (16 with AVX-512, 32 on GPUs).
_LANES = 4
_OF_DIFFERENCE = (
    5.0 / 4.0
)  # one part of m and four of μ², whose square has twice its relative error; half of it is left in 1 / √v
_TINY = 2.0**-126  # keeps the logarithm of a probability that underflowed finite; its square is multiplied by 0


def layer_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    """LayerNormalization: the error of its own roundings, and that of the mean and of the spread, times scale².

    Args:
        work: Where the expression is built.
        node: The operator; its first output y is a value of the graph.
        scale: What the result is multiplied by.

    Returns:
        Expected squared errors in units of (0.4247 u)² · `scale`, of the shape of y. So do the other functions here.
    """
    data, weight = required(node, 0), required(node, 1)
    axes = _normalized_axes(node, data)
    own, shift = _centred(work, node, (data, node.outputs[0]), axes, scale)
    return work.op("Add", [own, work.op("Mul", [work.square(weight), shift])])


def instance_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    """InstanceNormalization: as `layer_normalization` of what is behind each channel."""
    return _by_rows(
        work, node, [0, 0, -1], work.square(work.op("Reshape", [required(node, 1), work.integers([-1, 1])])), scale
    )


def group_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    """GroupNormalization: as `layer_normalization` of each group, of whose scales the mean square is taken."""
    groups = integer(node, "num_groups", 1)
    # One scale a group up to opset 20, one a channel since.
    weights = work.square(work.op("Reshape", [required(node, 1), work.integers([groups, -1])]))
    many = work.extent(weights, (-1,))
    mean = work.op(
        "Div",
        [work.op("ReduceSum", [weights, work.integers([-1])]), work.number(many) if isinstance(many, float) else many],
    )
    return _by_rows(work, node, [0, groups, -1], mean, scale)


def rms_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    """RMSNormalization: of each element y of the result y² times what the sum of squares costs."""
    data = required(node, 0)
    terms = work.extent(data, _normalized_axes(node, data))
    return work.scaled(work.square(node.outputs[0]), _spread_factor(work, terms, 2.0, scale))


def _normalized_axes(node: ir.Node, data: ir.Value) -> tuple[int, ...]:
    """The axes from `axis` on, counted from the last."""
    axis = integer(node, "axis", -1)
    rank = len(data.shape) if data.shape is not None else None
    if axis >= 0 and rank is None:  # which axes are left cannot be told: as if it were the last alone
        axis = -1
    return tuple(range(axis, 0)) if axis < 0 else tuple(range(axis - (rank or 0), 0))


def _by_rows(work: Expressions, node: ir.Node, rows: list[int], weights: ir.Value, scale: float) -> ir.Value:
    """The error where the data, reshaped to `rows`, are normalized along the last axis; `weights` are squared scales."""
    result, shape = node.outputs[0], work.integers(rows)
    both = work.op("Reshape", [required(node, 0), shape]), work.op("Reshape", [result, shape])
    own, shift = _centred(work, node, both, (-1,), scale)
    error = work.op("Add", [own, work.op("Mul", [weights, shift])])
    return work.op("Reshape", [error, work.op("Shape", [result], dtype=ir.DataType.INT64)])


def _centred(
    work: Expressions, node: ir.Node, both: tuple[ir.Value, ir.Value], axes: tuple[int, ...], scale: float
) -> tuple[ir.Value, ir.Value]:
    """Of data and result normalized along `axes`: the error of the result's own roundings, and E / v."""
    data, result = both
    terms = work.extent(data, axes)
    inverse = 1.0 / terms if isinstance(terms, float) else work.op("Reciprocal", [terms])
    kept = work.integers(axes)
    mean = work.scaled(work.op("ReduceSum", [data, kept]), inverse)
    mean_of_squares = work.scaled(work.op("ReduceSum", [work.square(data), kept]), inverse)
    mean_squared = work.square(mean)
    spread = work.op("Max", [work.op("Sub", [mean_of_squares, mean_squared]), work.number(0.0)])
    spread = work.op("Add", [spread, work.number(number(node, "epsilon", DEFAULT_EPSILON))])
    first = work.linear(terms, scale / (3.0 * _LANES**2), scale * ((_LANES + 1.0) / 3.0 + 1.0))
    second = work.linear(inverse, scale * (_LANES + 4.0) / 6.0, scale / (2.0 * _LANES))
    error = work.op("Add", [work.scaled(mean_squared, first), work.scaled(mean_of_squares, second)])
    own = work.scaled(work.square(result), _spread_factor(work, terms, 3.0, scale))
    if node.op_type == "GroupNormalization":
        lost = work.scaled(work.square(work.op("Div", [mean_of_squares, spread])), first)
        own = work.op("Add", [own, work.op("Mul", [work.square(result), work.scaled(lost, _OF_DIFFERENCE)])])
    return own, work.op("Div", [error, spread])


def _spread_factor(work: Expressions, terms: float | ir.Value, roundings: float, scale: float) -> float | ir.Value:
    return work.linear(terms, scale / (12.0 * _LANES**2), scale * (roundings + (_LANES + 1.0) / 12.0))


def batch_normalization(work: Expressions, node: ir.Node, scale: float) -> ir.Value:
    """BatchNormalization in inference, as engines fold it into a product and a sum for each channel."""
    data, gain, bias, mean, spread = (required(node, index) for index in range(5))
    divisor = work.op("Sqrt", [work.op("Add", [spread, work.number(number(node, "epsilon", DEFAULT_EPSILON))])])
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
    """Softmax and LogSoftmax along an axis."""
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
