"""Adjoints of operators on elements of several tensors, summed back over what was broadcast; of Clip, Cast and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic.adjoints._tape import Unknown
from parityscope.arithmetic.adjoints.activations import one_minus

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES"]


def _clip(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """The bounds are constants, or the adjoint is unknown to them."""
    x, y, grad = node.inputs[0], node.outputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    return {0: tape.mul(grad, tape.compare("Equal", x, y))}


def _pow(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """For a constant exponent: g p x^(p - 1)."""
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None:
        return {}
    exponent = tape.held(node.inputs[1]).astype(np.float32)
    if not tape.wants(x):
        return {}
    if exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0:
        slope = tape.mul(tape.const(2.0), x)
    else:
        slope = tape.mul(tape.const(exponent), tape.op("Pow", x, tape.const(exponent - 1)))
    made = tape.shape(node.outputs[0])
    return {0: tape.unbroadcast(tape.mul(grad, slope), made, tape.shape(x))}


def _two(node: ir.Node) -> tuple[ir.Value, ir.Value]:
    one, other = node.inputs[0], node.inputs[1]
    if one is None or other is None:
        raise Unknown
    return one, other


def _add(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    return _linear(tape, node, grads, {})


def _sub(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    return _linear(tape, node, grads, {1: -1.0})


def _mean(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    count = len(node.inputs)
    return _linear(tape, node, grads, dict.fromkeys(range(count), 1.0 / count))


def _linear(tape: Tape, node: ir.Node, grads: list[ir.Value | None], factors: dict[int, float]) -> dict[int, ir.Value]:
    """A sum of the inputs with these factors, 1 where none is given."""
    grad = grads[0]
    if grad is None:
        return {}
    made = tape.shape(node.outputs[0])
    found = {}
    for index, value in enumerate(node.inputs):
        if value is not None and tape.wants(value):
            factor = factors.get(index, 1.0)
            own = grad if factor == 1.0 else tape.mul(grad, tape.const(factor))
            found[index] = tape.unbroadcast(own, made, tape.shape(value))
    return found


def _mul(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    if grad is None:
        return {}
    pair, made = _two(node), tape.shape(node.outputs[0])
    return {
        index: tape.unbroadcast(tape.mul(grad, pair[1 - index]), made, tape.shape(pair[index]))
        for index in (0, 1)
        if tape.wants(pair[index])
    }


def _div(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad, y = grads[0], node.outputs[0]
    if grad is None:
        return {}
    (one, other), made = _two(node), tape.shape(y)
    over = tape.div(grad, other)
    found = {0: tape.unbroadcast(over, made, tape.shape(one))} if tape.wants(one) else {}
    if tape.wants(other):
        found[1] = tape.unbroadcast(tape.op("Neg", tape.mul(over, y)), made, tape.shape(other))
    return found


def _extreme(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Max and Min: to the inputs that equal the output, in equal parts where several do."""
    grad, y = grads[0], node.outputs[0]
    if grad is None:
        return {}
    made = tape.shape(y)
    masks = [tape.compare("Equal", value, y) for value in node.inputs if value is not None]
    total = masks[0]
    for one in masks[1:]:
        total = tape.add(total, one)
    share = tape.div(grad, total)
    return {
        index: tape.unbroadcast(tape.mul(share, masks[index]), made, tape.shape(value))
        for index, value in enumerate(node.inputs)
        if value is not None and tape.wants(value)
    }


def _prelu(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    (x, slope), made = _two(node), tape.shape(node.outputs[0])
    if grad is None:
        return {}
    negative = tape.compare("Less", x, tape.const(0.0))
    found = {}
    if tape.wants(x):
        derivative = tape.add(tape.mul(negative, slope), one_minus(tape, negative))
        found[0] = tape.unbroadcast(tape.mul(grad, derivative), made, tape.shape(x))
    if tape.wants(slope):
        found[1] = tape.unbroadcast(tape.mul(grad, tape.mul(negative, x)), made, tape.shape(slope))
    return found


def _where(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad, condition = grads[0], node.inputs[0]
    if grad is None or condition is None:
        return {}
    made = tape.shape(node.outputs[0])
    zero = tape.const(0.0)
    found = {}
    for index in (1, 2):
        value = node.inputs[index]
        if value is not None and tape.wants(value):
            pair = (grad, zero) if index == 1 else (zero, grad)
            found[index] = tape.unbroadcast(tape.op("Where", condition, *pair), made, tape.shape(value))
    return found


def _passed_on(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    training = node.inputs[2] if node.op_type == "Dropout" and len(node.inputs) > 2 else None
    if training is not None and bool(tape.held(training).any()):  # then it is random
        raise Unknown
    if node.op_type == "Cast" and integer(node, "to", 0) != 1:  # to another type than float32
        raise Unknown
    return {0: grad} if grad is not None and tape.wants(node.inputs[0]) else {}


RULES: dict[str, Adjoint] = {
    "Add": _add,
    "Cast": _passed_on,
    "Clip": _clip,
    "Div": _div,
    "Dropout": _passed_on,
    "Identity": _passed_on,
    "Max": _extreme,
    "Mean": _mean,
    "Min": _extreme,
    "Mul": _mul,
    "PRelu": _prelu,
    "Pow": _pow,
    "Sub": _sub,
    "Sum": _add,
    "Where": _where,
}
