"""The FP32 noise of a region: how far two honest FP32 evaluations of it on the same inputs are apart, element by element.

Second-moment model, u = 2^-24; a rounding has mean 0 and variance (0.4247 u)^2 of its result:

* a product of length n: both sides add in an order of their own. With Q = sum (a_k b_k)^2 and y the result, the partial sums'
  squares add up to about n/2 Q + n/3 y^2 (random walk plus drift), so each side has the variance
  (0.4247 u)^2 (n/2 Q + n/3 y^2 + y^2); Q is the same product of the squared operands. A truncating accumulator of blocks
  of 8 is off by 0.72 u on average in each of n/8 steps, together 0.72 u n/16 |y|: its square is added.
* under a hypothesis that names the accumulator (`Accumulator`: unit v, K = n / block steps) its error is added, over all orders
  of the terms: drawn without replacement, the partial sums S_k have sum_k E[S_k^2] = (K+1)/6 Q + (K+1)/3 y^2 and
  E[(sum_k S_k)^2] = (K+1)^2/4 y^2 + K(K+1)/12 (Q - y^2/K). Rounding to nearest gives the variance (0.4247 v)^2 sum S_k^2. One
  that drops bits, as tensor cores do, is off by 0.72 v S_k in every step and all in one direction, so that sums which end
  small but were large on the way are off too; and each term of a block is cut to 25 fraction bits of the largest first,
  a quarter of FP32's step each: with l = 0.72 (1 + block / 4), (l v)^2 (sum S_k)^2 + (0.446 v)^2 sum S_k^2, where
  0.446^2 = 0.847^2 - 0.72^2. A bias is no part of S_k.
* sums inside a normalization, a pooling or a Softmax: the same, as noise of the elements that enter (n/2 Q) and of the result
  (n/3 y^2).
* functions (Exp, Erf, Tanh, ...): 4 units in the last place of the result, and one of what enters.
* what only moves, compares or rounds to integers adds nothing; everything else rounds once on each side.

Noise of inner nodes goes through the rest of the region by a few evaluations with normal noise added, 2^10 times enlarged so
that FP32 resolves it, and scaled back: exact to first order.

Sources: constants from uniform rounding errors of log-uniform significands (docs/explanations.md, the noise floor);
N. J. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019;
Fasi et al., PeerJ CS 330, 2021 (truncation, blocks of 8).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.sites import PRODUCTS
from parityscope.expectation.error_model import ROUNDING
from parityscope.explanation.regions import open_region
from parityscope.light_dataclasses import dataclass, field
from parityscope.operators import base_of, of_exactness, of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.evaluation.sessions import Sessions
    from parityscope.explanation.regions import Again
    from parityscope.hypotheses.arithmetic import Accumulator, Variant

_TRUNCATION = 0.72  # mean of a rounding toward zero, in u
_BLOCK = 8  # terms that a tensor core adds at once
_SPREAD = 0.446  # standard deviation of a rounding toward zero, in u: its root mean square is 0.847
_ALIGNED = 2.0 ** (23 - 25)  # of an FP32 step, to which tensor cores cut every term before they add (Hopper: 25 bits)
_FUNCTION = 4.0  # units in the last place: what vendors promise of FP32 functions
_BOTH = math.sqrt(2.0)  # two evaluations, each with noise of its own
_ENLARGED = 1024.0  # FP32's noise; that of a coarser accumulator is resolved as it is
_DRAWS = 8
_LEAST = 0.25  # of its channel's mean variance: eight draws can come out small by chance, not by four
# Each rounds once, to the type that it gives.
_STORING = of_kind("conversion") | {"DequantizeLinear"}
# Control flow is as exact as what is inside of it, which nobody looks at here.
_EXACT = of_exactness("exact") - _STORING - of_kind("control flow")
_ONCE = of_exactness("correct") | _STORING
_SUMS = of_exactness("sums") - PRODUCTS.keys() - {"BatchNormalization"}


def noise_floor(
    model: ir.Model,
    feeds: Mapping[str, np.ndarray],
    sessions: Sessions,
    variant: Variant,
    generator: np.random.Generator,
    axis: int | None,
) -> np.ndarray:
    """Standard deviation of the noise of the region's output under `variant`: float64, of its shape."""
    name = str(model.graph.outputs[0].name)
    noise = _Noise(accumulator=variant.accumulator, generator=generator)
    coarse = variant.accumulator is not None and variant.accumulator.unit > _unit_roundoff(np.zeros(0, np.float32))
    enlarged = 1.0 if coarse else _ENLARGED
    with np.errstate(over="ignore", invalid="ignore"):
        run = open_region(model, sessions, variant, noise)
        clean = run(feeds)[name].astype(np.float64)
        total = np.zeros(clean.shape)
        noise.enlarged = enlarged
        for _ in range(_DRAWS):
            noisy = run(feeds)[name].astype(np.float64)
            moved = (noisy - clean) / enlarged
            total += np.square(np.where(np.isfinite(moved), moved, 0.0))
    variance = total / _DRAWS
    if axis is None or variance.ndim == 0:
        return np.sqrt(variance)
    others = tuple(each for each in range(variance.ndim) if each != axis)
    usual = variance.mean(axis=others, keepdims=True)
    return np.sqrt(np.where(variance > 0, np.maximum(variance, _LEAST * usual), variance))


@dataclass(slots=True, kw_only=True, eq=False)
class _Noise:
    """How much each node would add (`sizes`, by output name), and so many times that much normal noise.

    With `enlarged` 0 nothing is added, and the sizes are worked out.
    """

    accumulator: Accumulator | None
    generator: np.random.Generator
    enlarged: float = 0.0
    sizes: dict[str, np.ndarray] = field(default_factory=dict)

    def read(self, node: ir.Node, array: np.ndarray) -> np.ndarray:
        if not self.enlarged or node.op_type in _EXACT or node.op_type in _ONCE or node.op_type in PRODUCTS:
            return array
        terms = _count_summed(node, array) if node.op_type in _SUMS else 1.0
        size = self.enlarged * _BOTH * ROUNDING * _unit_roundoff(array) * max(1.0, math.sqrt(terms / 2.0))
        moved = array + array * (size * self._draw_normal(array))
        return np.where(np.isfinite(array), moved, array)  # a mask of -inf stays one

    def computed(
        self, site: str, node: ir.Node, arrays: Sequence[np.ndarray | None], array: np.ndarray, again: Again | None
    ) -> np.ndarray:
        if not self.enlarged:
            size = _error_added_by_node(self.accumulator, node, arrays, array, again)
            self.sizes.setdefault(site, np.where(np.isfinite(size), size, 0.0).astype(array.dtype))
            return array
        size = self.sizes.get(site, np.zeros(0))
        if size.shape != array.shape:
            return array
        return np.asarray(array + array.dtype.type(self.enlarged) * size * self._draw_normal(array), array.dtype)

    def _draw_normal(self, array: np.ndarray) -> np.ndarray:
        return self.generator.standard_normal(array.shape, np.float32).astype(array.dtype)


def _unit_roundoff(array: np.ndarray) -> float:
    return float(np.finfo(array.dtype).eps) / 2.0


def _error_added_by_node(
    accumulator: Accumulator | None,
    node: ir.Node,
    arrays: Sequence[np.ndarray | None],
    array: np.ndarray,
    again: Again | None,
) -> np.ndarray:
    """Standard deviation of what one node adds, of the shape of its result."""
    unit = _unit_roundoff(array)
    size = np.abs(array.astype(np.float64))
    if again is not None and node.op_type in PRODUCTS:
        terms = _count_terms(node, arrays, array)
        squares = again(_squared_inputs(node, arrays)).astype(np.float64)
        squares = np.where(np.isfinite(squares), squares, np.square(size))
        rounding = 2.0 * (ROUNDING * unit) ** 2 * (terms / 2.0 * squares + (terms / 3.0 + 1.0) * np.square(size))
        if accumulator is not None:
            return np.asarray(
                np.sqrt(rounding + _accumulation_error(accumulator, terms, squares, _squared_sum(node, arrays, array)))
            )
        return np.sqrt(rounding + np.square(_TRUNCATION * unit * terms / (2 * _BLOCK) * size))
    if node.op_type in _EXACT:
        return np.zeros_like(size)
    if node.op_type in _ONCE:
        return _BOTH * ROUNDING * unit * size
    first = arrays[0] if arrays else None
    terms = _count_summed(node, first) if node.op_type in _SUMS and first is not None else 0.0
    return _BOTH * unit * size * math.sqrt(_FUNCTION**2 + ROUNDING**2 * terms / 3.0)


def _squared_sum(node: ir.Node, arrays: Sequence[np.ndarray | None], array: np.ndarray) -> np.ndarray:
    """The squared sum of products, before a bias: what a bias cancels was summed up all the same."""
    result = array.astype(np.float64)
    bias = arrays[2] if len(arrays) > 2 and node.op_type in {"Conv", "Gemm"} else None
    if bias is None:
        return np.square(result)
    if node.op_type == "Conv":
        return np.asarray(np.square(result - bias.reshape(1, -1, *[1] * (result.ndim - 2))))
    factor = node.attributes.get_float("beta", 1.0)
    return np.asarray(np.square(result - factor * bias.astype(np.float64)))


def _accumulation_error(accumulator: Accumulator, terms: float, squares: np.ndarray, result2: np.ndarray) -> np.ndarray:
    """Mean square of an accumulator's error over all orders of `terms`: of their `squares` and the squared result."""
    steps = max(1.0, terms / accumulator.block)
    partial = (steps + 1.0) / 6.0 * squares + (steps + 1.0) / 3.0 * result2
    if not accumulator.truncates:
        return np.asarray((ROUNDING * accumulator.unit) ** 2 * partial)
    spread = np.maximum(squares - result2 / steps, 0.0)
    drift = (steps + 1.0) ** 2 / 4.0 * result2 + steps * (steps + 1.0) / 12.0 * spread
    lost = _TRUNCATION * (1.0 + _ALIGNED * accumulator.block)
    return np.asarray(accumulator.unit**2 * (lost**2 * drift + _SPREAD**2 * partial))


def _squared_inputs(node: ir.Node, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
    """The squares of a product's inputs; Gemm's factors are squared by putting each once more into its term."""
    squares = [None if array is None else np.square(array) for array in arrays]
    if node.op_type == "Gemm":
        for name, index in (("alpha", 0), ("beta", 2)):
            array = squares[index] if index < len(squares) else None
            if name in node.attributes and array is not None:
                squares[index] = array * np.float32(node.attributes[name].as_float())
    return squares


def _count_terms(node: ir.Node, arrays: Sequence[np.ndarray | None], array: np.ndarray) -> float:
    """The length of the sums in a product."""
    first, second = arrays[0], arrays[1] if len(arrays) > 1 else None
    if first is None or second is None:
        return 1.0
    product = base_of(node.op_type)
    if product == "Conv":
        return float(math.prod(second.shape[1:]))
    if product == "ConvTranspose":
        return float(second.shape[0] * math.prod(second.shape[2:]))
    if product == "Gemm":
        return math.sqrt(first.size * second.size / max(1, array.size))
    if product == "MatMul":
        return float(first.shape[-1])
    return float(max(first.shape, default=1))


def _count_summed(node: ir.Node, array: np.ndarray) -> float:
    """The number of elements that one result of a summing operator adds up."""
    if node.op_type in {"GlobalAveragePool", "GroupNormalization", "InstanceNormalization"}:
        return float(math.prod(array.shape[2:]))
    if node.op_type == "AveragePool":
        return float(math.prod(node.attributes["kernel_shape"].as_ints()))
    if node.op_type.startswith("Reduce"):
        return float(array.size)
    return float(array.shape[-1]) if array.ndim else 1.0
