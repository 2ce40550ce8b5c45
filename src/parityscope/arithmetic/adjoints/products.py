"""Adjoints of products: MatMul, Gemm, Einsum of two operands, Conv and ConvTranspose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers, number, text
from parityscope.arithmetic.adjoints._tape import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES", "Window", "scattered", "window_of"]

_OPERANDS = 2


def _matmul(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """A' = G B^T and B' = A^T G, summed over what was broadcast; vectors are matrices of one row or column."""
    one, other, grad = node.inputs[0], node.inputs[1], grads[0]
    if one is None or other is None or grad is None:
        return {}
    left, right = tape.shape(one), tape.shape(other)
    wide_left = (1, *left) if len(left) == 1 else left
    wide_right = (*right, 1) if len(right) == 1 else right
    batch = np.broadcast_shapes(wide_left[:-2], wide_right[:-2])
    made = (*batch, wide_left[-2], wide_right[-1])
    if len(left) == 1 or len(right) == 1:
        grad = tape.reshape(grad, made)
    found = {}
    if tape.wants(one):
        matrix = other if len(right) > 1 else tape.reshape(other, wide_right)
        product = tape.op("MatMul", grad, _turned(tape, matrix, len(wide_right)))
        summed = tape.unbroadcast(product, (*batch, *wide_left[-2:]), wide_left)
        found[0] = summed if len(left) > 1 else tape.reshape(summed, left)
    if tape.wants(other):
        matrix = one if len(left) > 1 else tape.reshape(one, wide_left)
        product = tape.op("MatMul", _turned(tape, matrix, len(wide_left)), grad)
        summed = tape.unbroadcast(product, (*batch, *wide_right[-2:]), wide_right)
        found[1] = summed if len(right) > 1 else tape.reshape(summed, right)
    return found


def _turned(tape: Tape, value: ir.Value, rank: int) -> ir.Value:
    """The matrices of a value transposed."""
    return tape.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


def _gemm(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    one, other, grad = node.inputs[0], node.inputs[1], grads[0]
    if one is None or other is None or grad is None:
        return {}
    turned = integer(node, "transA", 0), integer(node, "transB", 0)
    alpha = number(node, "alpha", 1.0)

    def gemm(first: ir.Value, second: ir.Value, turn_first: int, turn_second: int) -> ir.Value:
        attributes = [
            ir.AttrFloat32("alpha", alpha),
            ir.AttrInt64("transA", turn_first),
            ir.AttrInt64("transB", turn_second),
        ]
        return tape.op("Gemm", first, second, attributes=attributes)

    found = {}
    if tape.wants(one):
        found[0] = gemm(other, grad, turned[1], 1) if turned[0] else gemm(grad, other, 0, 1 - turned[1])
    if tape.wants(other):
        found[1] = gemm(grad, one, 1, turned[0]) if turned[1] else gemm(one, grad, 1 - turned[0], 0)
    bias = node.inputs[2] if len(node.inputs) > _OPERANDS else None
    if bias is not None and tape.wants(bias):
        scaled = tape.mul(grad, tape.const(number(node, "beta", 1.0)))
        found[2] = tape.unbroadcast(scaled, tape.shape(node.outputs[0]), tape.shape(bias))
    return found


def _einsum(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Of two operands whose every index stands in the other one or in the result: the same with places exchanged."""
    equation = text(node, "equation", "").replace(" ", "")
    grad = grads[0]
    terms, arrow, result = equation.partition("->")
    operands = terms.split(",")
    if len(operands) != _OPERANDS or not arrow or "." in equation or grad is None:
        raise Unknown
    found = {}
    for index in (0, 1):
        own, other, value = operands[index], operands[1 - index], node.inputs[1 - index]
        if not tape.wants(node.inputs[index]):
            continue
        if len(set(own)) < len(own) or not set(own) <= set(result) | set(other) or value is None:
            raise Unknown
        turned = [ir.AttrString("equation", f"{result},{other}->{own}")]
        found[index] = tape.op("Einsum", grad, value, attributes=turned)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a sliding window goes over its input, per spatial axis; `starts` and `ends` are what it reaches beyond it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def window_of(node: ir.Node, kernel: Sequence[int], read: Sequence[int], made: Sequence[int]) -> Window:
    """The window of a convolution or pooling between spatial dimensions `read` and `made`.

    With ceil_mode it may reach beyond the end by more than the padding; by less than nothing where strides leave a rest.
    """
    rank = len(kernel)
    strides = integers(node, "strides", (1,) * rank)
    dilations = integers(node, "dilations", (1,) * rank)
    pads = integers(node, "pads", (0,) * (2 * rank))
    starts = list(pads[:rank])
    auto = text(node, "auto_pad", "NOTSET")
    reach = [
        (out - 1) * stride + dilation * (size - 1) + 1
        for out, stride, dilation, size in zip(made, strides, dilations, kernel, strict=True)
    ]
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        total = [max(0, each - size) for each, size in zip(reach, read, strict=True)]
        starts = [(each + (auto == "SAME_LOWER")) // 2 for each in total]
    elif auto == "VALID":
        starts = [0] * rank
    ends = [each - start - size for each, start, size in zip(reach, starts, read, strict=True)]
    return Window(kernel=tuple(kernel), strides=strides, dilations=dilations, starts=tuple(starts), ends=tuple(ends))


def scattered(tape: Tape, grad: ir.Value, weights: ir.Value, window: Window, group: int) -> ir.Value:
    """The transposed convolution of `grad`: what a convolution with this window and these weights is the adjoint of."""
    attributes = [
        ir.AttrInt64s("strides", list(window.strides)),
        ir.AttrInt64s("dilations", list(window.dilations)),
        ir.AttrInt64s("pads", [*window.starts, *(max(0, end) for end in window.ends)]),
        ir.AttrInt64s("output_padding", [max(0, -end) for end in window.ends]),
        ir.AttrInt64("group", group),
    ]
    return tape.op("ConvTranspose", grad, weights, attributes=attributes)


def _conv(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, weights, grad = node.inputs[0], node.inputs[1], grads[0]
    if x is None or weights is None or grad is None or not tape.wants(x):
        return {}
    read, made, sizes = tape.shape(x), tape.shape(node.outputs[0]), tape.shape(weights)
    window = window_of(node, sizes[2:], read[2:], made[2:])
    group = integer(node, "group", 1)
    if all(stride == 1 for stride in window.strides):
        return {0: _correlated(tape, grad, weights, window, group)}
    return {0: scattered(tape, grad, weights, window, group)}


def _correlated(tape: Tape, grad: ir.Value, weights: ir.Value, window: Window, group: int) -> ir.Value:
    """Without strides the adjoint is a convolution too: with the kernel turned round, and channels exchanged.

    ONNX Runtime has fast kernels for Conv and a plain one for ConvTranspose.
    """
    held = tape.held(weights)
    outputs, inputs, *kernel = held.shape
    turned = np.flip(held, tuple(range(2, held.ndim))).reshape(group, outputs // group, inputs, *kernel)
    flipped = np.ascontiguousarray(np.swapaxes(turned, 1, 2)).reshape(group * inputs, outputs // group, *kernel)
    reach = [dilation * (size - 1) for dilation, size in zip(window.dilations, kernel, strict=True)]
    starts = [each - start for each, start in zip(reach, window.starts, strict=True)]
    ends = [each - end for each, end in zip(reach, window.ends, strict=True)]
    if min((*starts, *ends)) < 0:
        return scattered(tape, grad, weights, window, group)
    attributes = [
        ir.AttrInt64s("dilations", list(window.dilations)),
        ir.AttrInt64s("pads", [*starts, *ends]),
        ir.AttrInt64("group", group),
    ]
    return tape.op("Conv", grad, tape.const(flipped), attributes=attributes)


def _conv_transpose(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, weights, grad = node.inputs[0], node.inputs[1], grads[0]
    if x is None or weights is None or grad is None or not tape.wants(x):
        return {}
    if text(node, "auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attributes:
        raise Unknown
    kept = [
        attribute for name, attribute in node.attributes.items() if name in {"strides", "dilations", "pads", "group"}
    ]
    return {0: tape.op("Conv", grad, weights, attributes=kept)}


RULES: dict[str, Adjoint] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
