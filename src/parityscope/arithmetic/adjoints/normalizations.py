"""Adjoints of normalizations and of Softmax, with respect to the data alone: scales and offsets are parameters.

With h = (x - mean) r and r = 1 / sqrt(variance + epsilon) over n elements, and g the adjoint of h:
x' = r (g - mean(g) - h mean(g h)). Without a mean that is taken off the second term falls away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer, number
from parityscope.arithmetic.adjoints._tape import Unknown
from parityscope.arithmetic.standard import DEFAULT_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES"]


def _standardized(
    tape: Tape, x: ir.Value, grad: ir.Value, axes: Sequence[int], count: int, epsilon: float, *, centred: bool = True
) -> ir.Value:
    """The adjoint of x -> (x - mean) / sqrt(variance + epsilon) over `axes`, which hold `count` elements."""

    def mean(value: ir.Value) -> ir.Value:
        return tape.mul(tape.sum(value, axes), tape.const(1.0 / count))

    middle = tape.sub(x, mean(x)) if centred else x
    spread = tape.op("Sqrt", tape.add(mean(tape.mul(middle, middle)), tape.const(epsilon)))
    standard = tape.div(middle, spread)
    found = tape.sub(grad, tape.mul(standard, mean(tape.mul(grad, standard))))
    return tape.div(tape.sub(found, mean(grad)) if centred else found, spread)


def _by_axis(centred: bool) -> Adjoint:  # noqa: FBT001 - which of two operators it is
    """LayerNormalization and RMSNormalization: over all axes from `axis` on."""

    def rule(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
        x, scale, grad = node.inputs[0], node.inputs[1], grads[0]
        if any(one is not None for one in grads[1:]):  # the mean and the inverse deviation are read as well
            raise Unknown
        if x is None or scale is None or grad is None or not tape.wants(x):
            return {}
        shape = tape.shape(x)
        axes = list(range(integer(node, "axis", -1) % len(shape), len(shape)))
        count = math.prod(shape[axis] for axis in axes)
        epsilon = number(node, "epsilon", DEFAULT_EPSILON)
        return {0: _standardized(tape, x, tape.mul(grad, scale), axes, count, epsilon, centred=centred)}

    return rule


def _batch(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    if integer(node, "training_mode", 0):
        raise Unknown
    scale, variance = (tape.held(node.inputs[index]).astype(np.float64) for index in (1, 4))
    factor = scale / np.sqrt(variance + number(node, "epsilon", DEFAULT_EPSILON))
    return {0: tape.mul(grad, tape.const(factor.reshape(-1, *[1] * (len(tape.shape(x)) - 2))))}


def _instance(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, scale, grad = node.inputs[0], node.inputs[1], grads[0]
    if x is None or scale is None or grad is None or not tape.wants(x):
        return {}
    shape = tape.shape(x)
    wide = tape.reshape(scale, [1, shape[1], *[1] * (len(shape) - 2)])
    axes = list(range(2, len(shape)))
    epsilon = number(node, "epsilon", DEFAULT_EPSILON)
    return {0: _standardized(tape, x, tape.mul(grad, wide), axes, math.prod(shape[2:]), epsilon)}


def _group(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, scale, grad = node.inputs[0], node.inputs[1], grads[0]
    if x is None or scale is None or grad is None or not tape.wants(x):
        return {}
    shape, groups = tape.shape(x), integer(node, "num_groups", 1)
    scales = tape.shape(scale)[0]
    wide = tape.reshape(scale, [1, scales, *[1] * (len(shape) - 1)])  # before opset 21 one a group
    parts = tape.reshape(grad, [shape[0], scales, shape[1] // scales, *shape[2:]])
    count = math.prod(shape[1:]) // groups
    flat = [shape[0], groups, count]
    scaled = tape.reshape(tape.mul(parts, wide), flat)
    found = _standardized(tape, tape.reshape(x, flat), scaled, [2], count, number(node, "epsilon", DEFAULT_EPSILON))
    return {0: tape.reshape(found, shape)}


def _unit_length(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """LpNormalization by the Euclidean norm: x' = (g - y sum(g y)) / |x|."""
    x, y, grad = node.inputs[0], node.outputs[0], grads[0]
    if integer(node, "p", 2) != 2:
        raise Unknown
    if x is None or grad is None or not tape.wants(x):
        return {}
    axes = [integer(node, "axis", -1) % len(tape.shape(x))]
    norm = tape.op("Sqrt", tape.sum(tape.mul(x, x), axes))
    return {0: tape.div(tape.sub(grad, tape.mul(y, tape.sum(tape.mul(grad, y), axes))), norm)}


def _softmax(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Gives y (g - sum(g y))."""
    y, grad = node.outputs[0], grads[0]
    if grad is None or not tape.wants(node.inputs[0]):
        return {}
    axes = [integer(node, "axis", -1) % len(tape.shape(y))]
    return {0: tape.mul(y, tape.sub(grad, tape.sum(tape.mul(grad, y), axes)))}


def _log_softmax(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Gives g - exp(y) sum(g)."""
    y, grad = node.outputs[0], grads[0]
    if grad is None or not tape.wants(node.inputs[0]):
        return {}
    axes = [integer(node, "axis", -1) % len(tape.shape(y))]
    return {0: tape.sub(grad, tape.mul(tape.op("Exp", y), tape.sum(grad, axes)))}


RULES: dict[str, Adjoint] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LayerNormalization": _by_axis(True),
    "LogSoftmax": _log_softmax,
    "LpNormalization": _unit_length,
    "RMSNormalization": _by_axis(False),
    "Softmax": _softmax,
}
