"""Adjoints of reductions, and of the sum of what came before: g spread out again, times what each element had in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES"]


def _axes(tape: Tape, node: ir.Node, rank: int) -> list[int]:
    """The axes that are reduced, from an attribute or an input by opset."""
    axes: Sequence[int] = integers(node, "axes", ())
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        axes = [int(axis) for axis in tape.held(node.inputs[1]).reshape(-1)]
    if not axes:
        return [] if integer(node, "noop_with_empty_axes", 0) else list(range(rank))
    return sorted(axis % rank for axis in axes)


def _reduction(slope: Callable[[Tape, ir.Value, ir.Value, list[int], int], ir.Value | None]) -> Adjoint:
    """The rule of a reduction: `slope` is given x, y with its axes kept, the axes and how many elements they hold."""

    def rule(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
        x, grad = node.inputs[0], grads[0]
        if x is None or grad is None or not tape.wants(x):
            return {}
        shape = tape.shape(x)
        axes = _axes(tape, node, len(shape))
        kept = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
        wide, y = tape.reshape(grad, kept), tape.reshape(node.outputs[0], kept)
        factor = slope(tape, x, y, axes, math.prod(shape[axis] for axis in axes))
        return {0: tape.expand(wide, shape) if factor is None else tape.mul(wide, factor)}

    return rule


def _mean(tape: Tape, x: ir.Value, _: ir.Value, __: list[int], count: int) -> ir.Value:
    return tape.expand(tape.const(1.0 / count), tape.shape(x))


def _l2(tape: Tape, x: ir.Value, y: ir.Value, _: list[int], __: int) -> ir.Value:
    return tape.div(x, y)


def _squares(tape: Tape, x: ir.Value, _: ir.Value, __: list[int], ___: int) -> ir.Value:
    return tape.mul(tape.const(2.0), x)


def _sizes(tape: Tape, x: ir.Value, _: ir.Value, __: list[int], ___: int) -> ir.Value:
    return tape.op("Sign", x)


def _log_sum(tape: Tape, x: ir.Value, y: ir.Value, _: list[int], __: int) -> ir.Value:
    return tape.expand(tape.op("Exp", tape.op("Neg", y)), tape.shape(x))


def _log_sum_exp(tape: Tape, x: ir.Value, y: ir.Value, _: list[int], __: int) -> ir.Value:
    return tape.op("Exp", tape.sub(x, y))


def _extreme(tape: Tape, x: ir.Value, y: ir.Value, axes: list[int], _: int) -> ir.Value:
    """To the elements that equal the largest, in equal parts where several do."""
    mask = tape.compare("Equal", x, y)
    return tape.div(mask, tape.sum(mask, axes))


def _global(slope: Callable[[Tape, ir.Value, ir.Value, list[int], int], ir.Value | None]) -> Adjoint:
    """The same over all spatial axes of a pooling."""

    def rule(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
        x, grad = node.inputs[0], grads[0]
        if x is None or grad is None or not tape.wants(x):
            return {}
        shape = tape.shape(x)
        factor = slope(tape, x, node.outputs[0], list(range(2, len(shape))), math.prod(shape[2:]))
        return {0: tape.expand(grad, shape) if factor is None else tape.mul(grad, factor)}

    return rule


def _cumulative(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """What comes before an element has it in its own sum: the same the other way round."""
    grad = grads[0]
    if grad is None or not tape.wants(node.inputs[0]):
        return {}
    attributes = [
        ir.AttrInt64("exclusive", integer(node, "exclusive", 0)),
        ir.AttrInt64("reverse", 1 - integer(node, "reverse", 0)),
    ]
    return {0: tape.op("CumSum", grad, node.inputs[1], attributes=attributes)}


RULES: dict[str, Adjoint] = {
    "CumSum": _cumulative,
    "GlobalAveragePool": _global(_mean),
    "GlobalMaxPool": _global(_extreme),
    "ReduceL1": _reduction(_sizes),
    "ReduceL2": _reduction(_l2),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_extreme),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(_extreme),
    "ReduceProd": _reduction(lambda tape, x, y, _, __: tape.div(y, x)),  # where no element is zero
    "ReduceSum": _reduction(lambda _, __, ___, ____, _____: None),
    "ReduceSumSquare": _reduction(_squares),
}
