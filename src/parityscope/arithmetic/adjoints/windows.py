"""Adjoints of pooling and of Resize: linear maps from one grid to another, and the choice of the largest in a window.

A mean over windows is a convolution of each channel with a kernel of ones, and its adjoint the transposed one. Of a
maximum each window is laid out as channels first, by a convolution with unit kernels; the ones that equal the maximum
share its adjoint. Resize is a product with one matrix an axis, which is what Resize makes of a unit matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers, text
from parityscope.arithmetic.adjoints._tape import Unknown
from parityscope.arithmetic.adjoints.products import scattered, window_of

if TYPE_CHECKING:
    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES"]

_LOWEST = -3.0e38  # what a maximum is padded with: below everything that is compared


def _average(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    read, made = tape.shape(x), tape.shape(node.outputs[0])
    kernel = integers(node, "kernel_shape", ())
    window = window_of(node, kernel, read[2:], made[2:])
    counts = np.ones(made[2:])
    with_padding = integer(node, "count_include_pad", 0)
    for axis, size in enumerate(read[2:]):
        first = np.arange(made[2 + axis]) * window.strides[axis] - window.starts[axis]
        reached = first[:, None] + window.dilations[axis] * np.arange(kernel[axis])
        low, high = (-window.starts[axis], size + _padding_behind(node, axis)) if with_padding else (0, size)
        inside = ((reached >= low) & (reached < high)).sum(1)
        counts = counts * inside.reshape([-1 if each == axis else 1 for each in range(len(kernel))])
    weighted = tape.mul(grad, tape.const(1.0 / counts))
    ones = tape.const(np.ones((read[1], 1, *kernel)))
    return {0: scattered(tape, weighted, ones, window, read[1])}


def _padding_behind(node: ir.Node, axis: int) -> int:
    pads = integers(node, "pads", ())
    if not pads and text(node, "auto_pad", "NOTSET") != "NOTSET":
        raise Unknown
    return pads[len(pads) // 2 + axis] if pads else 0


def _maximum(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, y, grad = node.inputs[0], node.outputs[0], grads[0]
    if any(one is not None for one in grads[1:]):
        raise Unknown
    if x is None or grad is None or not tape.wants(x):
        return {}
    read, made = tape.shape(x), tape.shape(y)
    kernel = integers(node, "kernel_shape", ())
    window = window_of(node, kernel, read[2:], made[2:])
    channels, count = read[1], math.prod(kernel)
    units = np.zeros((channels, count, 1, *kernel))
    flat = units.reshape(channels, count, count)
    flat[:, range(count), range(count)] = 1.0
    unit = tape.const(units.reshape(channels * count, 1, *kernel))
    after = [max(0, end) for end in window.ends]
    border = [0, 0, *window.starts, 0, 0, *after]
    padded = tape.op("Pad", x, tape.const(border), tape.const(_LOWEST))
    attributes = [
        ir.AttrInt64s("strides", list(window.strides)),
        ir.AttrInt64s("dilations", list(window.dilations)),
        ir.AttrInt64("group", channels),
    ]
    apart = [made[0], channels, count, *made[2:]]
    laid_out = tape.reshape(tape.op("Conv", padded, unit, attributes=attributes), apart)
    mask = tape.compare("Equal", laid_out, tape.reshape(y, [made[0], channels, 1, *made[2:]]))
    share = tape.div(tape.reshape(grad, [made[0], channels, 1, *made[2:]]), tape.sum(mask, [2]))
    back = tape.reshape(tape.mul(mask, share), [made[0], channels * count, *made[2:]])
    return {0: scattered(tape, back, unit, window, channels)}


def _resized(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Of planes (the last two axes): M_h^T G M_w, with M what the same Resize makes of a unit matrix."""
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    read, made = tape.shape(x), tape.shape(node.outputs[0])
    rank = len(read)
    cropped = text(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if cropped or integers(node, "axes", ()) or rank < 3 or read[:-2] != made[:-2] or 0 in read:
        raise Unknown
    scales = _scales(tape, node, rank)
    if read[-1] != made[-1]:
        matrix = _interpolation(tape, node, read[-1], made[-1], scales[-1] if scales else 0.0)
        grad = tape.op("MatMul", grad, tape.transpose(matrix, [1, 0]))
    if read[-2] != made[-2]:
        matrix = _interpolation(tape, node, read[-2], made[-2], scales[-2] if scales else 0.0)
        grad = tape.op("MatMul", matrix, grad)
    return {0: grad}


def _scales(tape: Tape, node: ir.Node, rank: int) -> list[float]:
    """The scales that Resize was given; none where it was given sizes."""
    if node.op_type == "Upsample" or len(node.inputs) < 3 or node.inputs[2] is None:
        return []
    value = node.inputs[2]
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return []
    found = [float(each) for each in tape.held(value).reshape(-1)]
    return found if len(found) == rank else []


def _interpolation(tape: Tape, node: ir.Node, before: int, after: int, scale: float) -> ir.Value:
    """(before, after): row i is what becomes of an axis that is 1 at place i."""
    kept = [one for name, one in node.attributes.items() if name not in {"axes", "keep_aspect_ratio_policy"}]
    unit = tape.const(np.eye(before).reshape(1, 1, before, before))
    if scale:
        given = tape.const(np.array([1.0, 1.0, 1.0, scale]))
        made = tape.op("Resize", unit, None, given, attributes=kept)
    else:
        sizes = tape.const([1, 1, before, after])
        made = tape.op("Resize", unit, None, None, sizes, attributes=kept)
    if scale and math.floor(before * scale) != after:
        raise Unknown
    return tape.reshape(made, [before, after])


RULES: dict[str, Adjoint] = {"AveragePool": _average, "MaxPool": _maximum, "Resize": _resized}
