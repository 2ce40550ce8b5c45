"""One channel scaled: one channel of a layer's parameters or result has another factor.

The channel with the largest error is taken; its factor is fitted, on the weight (the bias stays) and on the result.
A per-channel quantization scale, a gain of the wrong channel and a truncated copy of weights look like this.

Source: the planted-fault experiments of the noise floor (docs/explanations.md): a factor of 1.002 in one of 64 channels
passes every whole-tensor gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, behind, constant, gives_output, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

# Of input 1, where output channels lie; of a transposed convolution with groups no axis has all of them.
_WEIGHT_AXIS = {
    "BatchNormalization": 0,
    "Conv": 0,
    "ConvTranspose": 1,
    "GroupNormalization": 0,
    "InstanceNormalization": 0,
    "LayerNormalization": 0,
    "MatMul": 1,
    "RMSNormalization": 0,
}
_REACH = 2.0  # how far beyond the first estimate the factor is sought


def _applies(node: ir.Node, graph: ir.Graph) -> bool:
    return gives_output(node, graph) or _weight(node) is not None


def _weight(node: ir.Node) -> tuple[np.ndarray, int] | None:
    array = array_of(node, 1)
    if node.op_type == "Gemm" and array is not None:
        return array, 0 if integer(node, "transB", 0) else 1
    if node.op_type not in _WEIGHT_AXIS or array is None or array.ndim <= _WEIGHT_AXIS[node.op_type]:
        return None
    return array, _WEIGHT_AXIS[node.op_type]


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    shape = context.replayed.shape
    if context.replayed.size == 0 or context.value(node.outputs[0]).dtype.kind != "f":
        return
    for axis in sorted({1, len(shape) - 1} if len(shape) > 1 else set(), reverse=node.op_type in {"MatMul", "Gemm"}):
        channel, factor = _worst(context, axis)
        span = (min(1.0, factor) - _REACH, max(1.0, factor) + _REACH)
        if gives_output(node, context.model.graph):
            yield Variant(
                words=f"index {channel} of axis {axis} of the result is multiplied by {{parameter}}",
                rewrite=_on_result(shape, axis, channel),
                span=span,
                neutral=1.0,
            )
        weight = _weight(node)
        if weight is not None and weight[0].shape[weight[1]] == shape[axis]:
            yield Variant(
                words=f"the weights of channel {channel} are multiplied by {{parameter}}",
                rewrite=_on_weight(weight[1], channel),
                span=span,
                neutral=1.0,
            )


def _worst(context: Context, axis: int) -> tuple[int, float]:
    """The index along `axis` that holds most of the squared error, and the factor that fits it best."""
    others = tuple(each for each in range(context.replayed.ndim) if each != axis)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.square(context.candidate - context.replayed)
    energy = np.where(np.isfinite(error), error, 0.0).sum(axis=others)
    channel = int(energy.argmax())
    mine, its = (np.take(array, channel, axis).ravel() for array in (context.replayed, context.candidate))
    finite = np.isfinite(mine) & np.isfinite(its)
    norm = float(np.square(mine[finite]).sum())
    return channel, float((mine[finite] * its[finite]).sum()) / norm if norm > 0 else 1.0


def _factors(length: int, channel: int, factor: float, shape: list[int]) -> np.ndarray:
    factors = np.ones(length, np.float32)
    factors[channel] = factor
    return factors.reshape(shape)


def _on_result(shape: tuple[int, ...], axis: int, channel: int) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, factor: float) -> None:
        factors = _factors(shape[axis], channel, factor, [-1 if each == axis else 1 for each in range(len(shape))])
        behind(model, node, "Mul", [constant(model, factors, f"{node.outputs[0].name}::factors")])

    return rewrite


def _on_weight(axis: int, channel: int) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, factor: float) -> None:
        array = array_of(node, 1)
        if array is not None:
            shape = [-1 if each == axis else 1 for each in range(array.ndim)]
            read(model, node, 1, array * _factors(array.shape[axis], channel, factor, shape).astype(array.dtype))

    return rewrite


HYPOTHESIS = Hypothesis(
    name="channel_scaled", title="One channel scaled", family="semantic", applies=_applies, variants=_variants
)
