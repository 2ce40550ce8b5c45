"""The expected squared error of one node's FP32 evaluation, elementwise: `error_model` for the operators of ONNX.

In: a node, what it read and what it gave. Out: a float64 array of the result's shape (or one that broadcasts to it), in units of
(0.4247 u)². With n terms in a sum and q the sum of their squares (the same node on squared inputs):

* Conv, ConvTranspose, Gemm, MatMul, Einsum, ReduceSum:  (n + 1) (2 y² + q) / 6. A bias is added to the accumulator.
* added to those of reductions, y² (m n)² / 9 for the share m of elements that repeat their neighbour (`repeated_terms_error`)
* ReduceMean, AveragePool, GlobalAveragePool, with m the mean of the squares:  y² ((n + 1) / 3 + 1) + m (n + 1) / (6 n)
* ReduceSumSquare, ReduceL1 (sums of positive terms):  y² (n + 1) / 3;  ReduceL2 (half the relative error, one
  rounding more):  y² ((n + 1) / 12 + 1)
* LayerNormalization over n numbers of mean μ and variance v, added in L lanes that are summed at the end (for n >> L that
  is n / (3 L²) + (L + 1) / 3 for s² and n / (2 L) + (L + 4) / 6 for q):
  y² (3 + n / (12 L²) + (L + 1) / 12) + scale² E / v, where E is the expected squared error of μ
* InstanceNormalization and GroupNormalization: the same over what is behind the channel or in the group, of whose scales
  the mean square is taken. The standard defines the latter's variance as m - μ², with m the mean of the squares, and ONNX
  Runtime computes it so: 5 m² (n / (3 L²) + (L + 1) / 3 + 1) more on v, and y² / (4 v²) times that on the result
* RMSNormalization, which subtracts nothing:  y² (2 + n / (12 L²) + (L + 1) / 12)
* BatchNormalization as engines fold it, y = A x + B, with A, m A and B rounded:  2 (A x)² + (m A)² + B² + y²
* Softmax:  y² (ln² y + (2·3)² + n / (3 L²) + (L + 1) / 3 + 1): the difference to the maximum, at most |ln y|, is
  rounded before exp, n positive terms are added in lanes, the quotient is rounded; LogSoftmax:  2 y² and the rest
* everything elementwise:  (2 B)² y² for a function that is right to B units in the last place (`ulps`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.expectation.error_model import chain_error, repeated_terms_error
from parityscope.expectation.grades import EXACT, ULPS, ulps_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    import onnx_ir as ir

# The same operator on other inputs (None where one is left out); a Gemm's alpha is squared.
Again = Callable[[Sequence[np.ndarray | None]], np.ndarray]
_Inputs = Sequence[np.ndarray | None]
_Rule = Callable[["ir.Node", Sequence[np.ndarray], np.ndarray, Again], np.ndarray]

_EXP_ULPS = ULPS["Exp"]
# Accumulators of sums along an axis inside one operator: the numbers in a vector register that every x86-64 and ARM64 CPU
# has. Engines use that many or more (16 with AVX-512, 32 on GPUs).
_LANES = 4
# One part of m and four of μ², whose square has twice its relative error; half of it is left in 1 / √v.
_OF_DIFFERENCE = 5.0 / 4.0
_TINY = 2.0**-126  # keeps the logarithm of a probability that underflowed finite; its square is multiplied by 0


def variance_of_node(
    node: ir.Node, inputs: Sequence[np.ndarray | None], result: np.ndarray, again: Again
) -> np.ndarray | None:
    """The expected squared error of each element of the node's first output, in units of (0.4247 u)².

    Args:
        node: Says the operator and its attributes.
        inputs: What it read.
        result: Its first output.
        again: The same operator on squared inputs.

    Returns:
        float64, of the shape of `result` or one that broadcasts to it; None for operators that make no error.
    """
    if node.op_type in EXACT:
        return None
    rule = _RULES.get(node.op_type)
    if rule is None:
        ulps = ulps_of(node)
        return None if ulps is None else _squared_float64(result) * (2.0 * ulps) ** 2
    return rule(node, [_given(array) for array in inputs], result, again)


def _squared_float64(array: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.square(array, dtype=np.float64)
    return found


def _squared_as_typed(array: np.ndarray) -> np.ndarray:
    """The squares in the array's own type, as a runtime takes them."""
    with np.errstate(over="ignore"):
        found: np.ndarray = np.square(array)
    return found


def least_of_product(node: ir.Node, inputs: _Inputs) -> float | None:
    """What of a product's expected squared error its result alone tells, as a multiple of y²; None for other operators.

    It is the part without q, (n + 1) / 3: in sums of terms of no common sign two thirds of it.
    """
    rule = _RULES.get(node.op_type)
    return (rule.terms(node, inputs) + 1.0) / 3.0 if isinstance(rule, _Product) else None


@dataclass(frozen=True, slots=True)
class _Product:
    """The rule of sums of products; `terms` gives the number of terms of each."""

    terms: Callable[[ir.Node, _Inputs], float]

    def __call__(self, node: ir.Node, inputs: _Inputs, result: np.ndarray, again: Again) -> np.ndarray:
        equation = node.attributes.get_string("equation", "") if node.op_type == "Einsum" else ","
        squares = again([_squared_as_typed(_given(array)) for array in inputs[: equation.count(",") + 1]])
        return chain_error(_squared_float64(result), squares, self.terms(node, inputs))


def _given(array: np.ndarray | None) -> np.ndarray:
    return np.zeros(0) if array is None else array


def _terms_of_conv(_: ir.Node, inputs: _Inputs) -> float:
    weights = _given(inputs[1])
    return float(weights.size / max(1, weights.shape[0]))


def _terms_of_conv_transpose(node: ir.Node, inputs: _Inputs) -> float:
    weights = _given(inputs[1])
    # Groups share the input's channels; with a stride, so many elements share the taps of one input element.
    shared = prod(tuple(node.attributes.get_ints("strides", ()))) * node.attributes.get_int("group", 1)
    return float(weights.size / max(1, weights.shape[1]) / shared)


def _terms_of_matmul(_: ir.Node, inputs: _Inputs) -> float:
    return float(_given(inputs[0]).shape[-1])


def _terms_of_gemm(node: ir.Node, inputs: _Inputs) -> float:
    return float(_given(inputs[0]).shape[0 if node.attributes.get_int("transA", 0) else 1])


def _terms_of_einsum(node: ir.Node, inputs: _Inputs) -> float:
    operands, arrow, given = node.attributes.get_string("equation", "").replace(" ", "").partition("->")
    labels = operands.split(",")
    if not arrow:  # what occurs once is kept
        joined = operands.replace(",", "").replace(".", "")
        given = "".join(label for label in joined if joined.count(label) == 1)
    terms, seen = 1.0, set(given)
    for axes, array in zip(labels, inputs, strict=False):
        head, dots, _ = axes.partition("...")
        plain = axes.replace(".", "")
        for index, label in enumerate(plain):
            if label not in seen:
                seen.add(label)
                terms *= _given(array).shape[index if not dots or index < len(head) else index - len(plain)]
    return terms


def _reduce_sum(_: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, again: Again) -> np.ndarray:
    data, *rest = inputs
    terms = _size_ratio(data, result)
    squares = again([_squared_as_typed(data), *(each if each.size else None for each in rest)])
    return np.asarray(
        chain_error(_squared_float64(result), squares, terms)
        + repeated_terms_error(_squared_float64(result), _share_of_repeats(data) * terms)
    )


def _variance_of_mean(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, again: Again) -> np.ndarray:
    data, *rest = inputs
    kernel = tuple(node.attributes.get_ints("kernel_shape", ()))
    terms = float(prod(kernel)) if kernel else _size_ratio(data, result)
    means = again([_squared_as_typed(data), *(each if each.size else None for each in rest)]).astype(np.float64)
    squares = _squared_float64(result)
    random = squares * ((terms + 1.0) / 3.0 + 1.0) + means * (terms + 1.0) / (6.0 * terms)
    return np.asarray(random + repeated_terms_error(squares, _share_of_repeats(data) * terms))


def _share_of_repeats(data: np.ndarray) -> float:
    """The share of elements that are not zero and equal their neighbour on the last axis."""
    if not data.size or not data.ndim:
        return 0.0
    ahead, behind = data[..., 1:], data[..., :-1]
    return float(np.count_nonzero((ahead == behind) & (ahead != 0))) / data.size


def _size_ratio(data: np.ndarray, result: np.ndarray) -> float:
    return data.size / max(1, result.size)


def _positive_sum(_: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _again: Again) -> np.ndarray:
    return _squared_float64(result) * ((_size_ratio(inputs[0], result) + 1.0) / 3.0)


def _variance_of_norm(_: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _again: Again) -> np.ndarray:
    return _squared_float64(result) * ((_size_ratio(inputs[0], result) + 1.0) / 12.0 + 1.0)


def _layer_normalization(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    data, weight = inputs[:2]
    own, shift = _centred_errors(node, data, result, _normalized_axes(node, data))
    return np.asarray(own + _squared_float64(weight) * shift)


def _instance_normalization(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    data, weight = inputs[:2]
    return _variance_by_rows(node, data, result, data.shape[:2], _squared_float64(weight).reshape(1, -1, 1))


def _group_normalization(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    data, weight = inputs[:2]
    groups = node.attributes.get_int("num_groups", 1)
    # One scale a group up to opset 20, one a channel since.
    mean = _squared_float64(weight).reshape(groups, -1).mean(axis=-1)
    return _variance_by_rows(node, data, result, (data.shape[0], groups), mean.reshape(1, groups, 1))


def _rms_normalization(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    data = inputs[0]
    terms = prod(data.shape[axis] for axis in _normalized_axes(node, data))
    return _squared_float64(result) * _spread_factor(terms, 2.0)


def _normalized_axes(node: ir.Node, data: np.ndarray) -> tuple[int, ...]:
    axis = node.attributes.get_int("axis", -1)
    return tuple(range(axis % data.ndim, data.ndim))


def _variance_by_rows(
    node: ir.Node, data: np.ndarray, result: np.ndarray, rows: tuple[int, ...], weights: np.ndarray
) -> np.ndarray:
    """The error where the data, reshaped to `rows`, are normalized along a last axis; `weights` are squared scales."""
    own, shift = _centred_errors(node, data.reshape(*rows, -1), result.reshape(*rows, -1), (2,))
    return np.asarray(own + weights * shift).reshape(result.shape)


def _centred_errors(
    node: ir.Node, data: np.ndarray, result: np.ndarray, axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Of data and result normalized along `axes`: the error of the result's own roundings, and E / v."""
    terms = prod(data.shape[axis] for axis in axes)
    wide = data.astype(np.float64)
    squares_of_mean = np.square(wide.mean(axis=axes, keepdims=True))
    mean_of_squares = np.square(wide).mean(axis=axes, keepdims=True)
    spread = np.maximum(mean_of_squares - squares_of_mean, 0.0) + node.attributes.get_float("epsilon", DEFAULT_EPSILON)
    first = terms / (3.0 * _LANES**2) + (_LANES + 1.0) / 3.0 + 1.0
    second = (_LANES + 4.0) / 6.0 / terms + 1.0 / (2.0 * _LANES)
    error = squares_of_mean * first + mean_of_squares * second
    own = _squared_float64(result) * _spread_factor(terms, 3.0)
    if node.op_type == "GroupNormalization":
        own = own + _squared_float64(result) * np.square(mean_of_squares / spread) * first * _OF_DIFFERENCE
    return own, error / spread


def _spread_factor(terms: float, roundings: float) -> float:
    return terms / (12.0 * _LANES**2) + roundings + (_LANES + 1.0) / 12.0


def _batch_normalization(node: ir.Node, inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    data, gain, bias, mean, spread = inputs[:5]
    across = (1, -1, *(1,) * (data.ndim - 2))  # channels lie on axis 1
    slope = gain.astype(np.float64) / np.sqrt(
        spread + np.float64(node.attributes.get_float("epsilon", DEFAULT_EPSILON))
    )
    shift = mean * slope
    constant = np.square(shift) + np.square(bias - shift)
    if data.ndim > 1:
        slope, constant = slope.reshape(across), constant.reshape(across)
    return np.asarray(2.0 * _squared_float64(data * slope) + constant + _squared_float64(result))


def _variance_of_softmax(node: ir.Node, _inputs: Sequence[np.ndarray], result: np.ndarray, _: Again) -> np.ndarray:
    terms = result.shape[node.attributes.get_int("axis", -1)] if result.ndim else 1
    sums = terms / (3.0 * _LANES**2) + (2.0 * _EXP_ULPS) ** 2 + (_LANES + 1.0) / 3.0 + 1.0
    squares = _squared_float64(result)
    if node.op_type == "LogSoftmax":  # ln y: relative errors become absolute, and y itself is rounded
        return squares * 2.0 + sums
    with np.errstate(invalid="ignore"):
        logarithm = np.log(np.maximum(result, _TINY, dtype=np.float64))
    return np.asarray(squares * (np.square(logarithm) + sums))


_RULES: Mapping[str, _Rule] = {
    "AveragePool": _variance_of_mean,
    "BatchNormalization": _batch_normalization,
    "Conv": _Product(_terms_of_conv),
    "ConvTranspose": _Product(_terms_of_conv_transpose),
    "Einsum": _Product(_terms_of_einsum),
    "Gemm": _Product(_terms_of_gemm),
    "GlobalAveragePool": _variance_of_mean,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _variance_of_softmax,
    "MatMul": _Product(_terms_of_matmul),
    "ReduceL1": _positive_sum,
    "ReduceL2": _variance_of_norm,
    "ReduceMean": _variance_of_mean,
    "ReduceSum": _reduce_sum,
    "ReduceSumSquare": _positive_sum,
    "RMSNormalization": _rms_normalization,
    "Softmax": _variance_of_softmax,
}
SUMMED = frozenset(_RULES)
