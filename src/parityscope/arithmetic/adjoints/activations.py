"""Adjoints of activations and other functions of single elements: g f'(x)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.arithmetic._attributes import number, text

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

    Derivative = Callable[[Tape, ir.Node, ir.Value, ir.Value], ir.Value]

__all__ = ["RULES", "one_minus"]

# The constants of Selu's definition (ONNX operator Selu-6).
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _unary(derivative: Derivative) -> Adjoint:
    """The rule of y = f(x): `derivative` is given x and y."""

    def rule(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
        x, y, grad = node.inputs[0], node.outputs[0], grads[0]
        if x is None or grad is None or not tape.wants(x):
            return {}
        return {0: tape.mul(grad, derivative(tape, node, x, y))}

    return rule


def one_minus(tape: Tape, value: ir.Value) -> ir.Value:
    """1 less a value."""
    return tape.sub(tape.const(1.0), value)


def _sigmoid(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.mul(y, one_minus(tape, y))


def _tanh(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return one_minus(tape, tape.mul(y, y))


def _relu(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.compare("Greater", x, tape.const(0.0))


def _leaky(tape: Tape, node: ir.Node, x: ir.Value, _: ir.Value) -> ir.Value:
    positive = tape.compare("Greater", x, tape.const(0.0))
    slope = tape.const(number(node, "alpha", 0.01))
    return tape.add(positive, tape.mul(slope, one_minus(tape, positive)))


def _log(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.op("Reciprocal", x)


def _sqrt(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.div(tape.const(0.5), y)


def _reciprocal(tape: Tape, _: ir.Node, __: ir.Value, y: ir.Value) -> ir.Value:
    return tape.op("Neg", tape.mul(y, y))


def _erf(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    square = tape.op("Neg", tape.mul(x, x))
    return tape.mul(tape.const(2.0 / math.sqrt(math.pi)), tape.op("Exp", square))


def _hard_sigmoid(tape: Tape, node: ir.Node, _: ir.Value, y: ir.Value) -> ir.Value:
    inside = tape.mul(
        tape.compare("Greater", y, tape.const(0.0)),
        tape.compare("Less", y, tape.const(1.0)),
    )
    return tape.mul(tape.const(number(node, "alpha", 0.2)), inside)


def _hard_swish(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    """0 below -3, 1 above 3, (2x + 3) / 6 between."""
    above = tape.compare("GreaterOrEqual", x, tape.const(3.0))
    between = tape.mul(tape.compare("Greater", x, tape.const(-3.0)), one_minus(tape, above))
    slope = tape.add(tape.mul(x, tape.const(1.0 / 3.0)), tape.const(0.5))
    return tape.add(above, tape.mul(between, slope))


def _softplus(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    return tape.op("Sigmoid", x)


def _softsign(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    size = tape.add(tape.op("Abs", x), tape.const(1.0))
    return tape.op("Reciprocal", tape.mul(size, size))


def _elu(tape: Tape, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
    positive = tape.compare("Greater", x, tape.const(0.0))
    below = tape.add(y, tape.const(number(node, "alpha", 1.0)))
    return tape.add(positive, tape.mul(below, one_minus(tape, positive)))


def _selu(tape: Tape, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
    alpha, gamma = number(node, "alpha", _SELU_ALPHA), number(node, "gamma", _SELU_GAMMA)
    positive = tape.compare("Greater", x, tape.const(0.0))
    below = tape.add(y, tape.const(alpha * gamma))
    return tape.add(tape.mul(positive, tape.const(gamma)), tape.mul(below, one_minus(tape, positive)))


def _gelu(tape: Tape, node: ir.Node, x: ir.Value, _: ir.Value) -> ir.Value:
    if text(node, "approximate", "none") == "tanh":
        c, a = math.sqrt(2.0 / math.pi), 0.044715
        square = tape.mul(x, x)
        inner = tape.mul(tape.mul(x, tape.const(c)), tape.add(tape.mul(square, tape.const(a)), tape.const(1.0)))
        tanh = tape.op("Tanh", inner)
        slope = tape.mul(tape.const(c), tape.add(tape.mul(square, tape.const(3.0 * a)), tape.const(1.0)))
        bent = tape.mul(tape.mul(x, one_minus(tape, tape.mul(tanh, tanh))), slope)
        return tape.mul(tape.const(0.5), tape.add(tape.add(tanh, tape.const(1.0)), bent))
    erf = tape.op("Erf", tape.mul(x, tape.const(1.0 / math.sqrt(2.0))))
    cumulative = tape.mul(tape.const(0.5), tape.add(erf, tape.const(1.0)))
    density = tape.op("Exp", tape.mul(tape.const(-0.5), tape.mul(x, x)))
    return tape.add(cumulative, tape.mul(x, tape.mul(density, tape.const(1.0 / math.sqrt(2.0 * math.pi)))))


def _mish(tape: Tape, _: ir.Node, x: ir.Value, __: ir.Value) -> ir.Value:
    tanh = tape.op("Tanh", tape.op("Softplus", x))
    bent = tape.mul(tape.mul(x, one_minus(tape, tape.mul(tanh, tanh))), tape.op("Sigmoid", x))
    return tape.add(tanh, bent)


RULES: dict[str, Adjoint] = {
    "Abs": _unary(lambda tape, _, x, __: tape.op("Sign", x)),
    "Cos": _unary(lambda tape, _, x, __: tape.op("Neg", tape.op("Sin", x))),
    "Elu": _unary(_elu),
    "Erf": _unary(_erf),
    "Exp": _unary(lambda _, __, ___, y: y),
    "Gelu": _unary(_gelu),
    "HardSigmoid": _unary(_hard_sigmoid),
    "HardSwish": _unary(_hard_swish),
    "LeakyRelu": _unary(_leaky),
    "Log": _unary(_log),
    "Mish": _unary(_mish),
    "Neg": _unary(lambda tape, _, __, ___: tape.const(-1.0)),
    "Reciprocal": _unary(_reciprocal),
    "Relu": _unary(_relu),
    "Selu": _unary(_selu),
    "Sigmoid": _unary(_sigmoid),
    "Sin": _unary(lambda tape, _, x, __: tape.op("Cos", x)),
    "Softplus": _unary(_softplus),
    "Softsign": _unary(_softsign),
    "Sqrt": _unary(_sqrt),
    "Tanh": _unary(_tanh),
}
