"""Adjoints of operators that move numbers: each number's adjoint goes back to where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers, text
from parityscope.arithmetic.adjoints._tape import Unknown

if TYPE_CHECKING:
    from parityscope.arithmetic.adjoints import Adjoint
    from parityscope.arithmetic.adjoints._tape import Tape

__all__ = ["RULES"]


def _reshaped(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    return {0: tape.reshape(grad, tape.shape(x))} if x is not None and grad is not None and tape.wants(x) else {}


def _transposed(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    rank = len(tape.shape(x))
    perm = integers(node, "perm", tuple(reversed(range(rank))))
    return {0: tape.transpose(grad, [int(axis) for axis in np.argsort(perm)])}


def _concatenated(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    if grad is None:
        return {}
    axis = integer(node, "axis", 0) % len(tape.shape(node.outputs[0]))
    found, at = {}, 0
    for index, value in enumerate(node.inputs):
        size = tape.shape(value)[axis]
        if value is not None and size and tape.wants(value):
            found[index] = _part(tape, grad, axis, at, at + size)
        at += size
    return found


def _part(tape: Tape, value: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    return tape.op("Slice", value, tape.const([start]), tape.const([end]), tape.const([axis]))


def _padded(tape: Tape, value: ir.Value, before: list[int], after: list[int]) -> ir.Value:
    return tape.op("Pad", value, tape.const([*before, *after])) if any((*before, *after)) else value


def _split(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x = node.inputs[0]
    if x is None or not tape.wants(x):
        return {}
    parts = [
        tape.expand(tape.const(0.0), tape.shape(value)) if grad is None else grad
        for value, grad in zip(node.outputs, grads, strict=True)
    ]
    axis = integer(node, "axis", 0) % len(tape.shape(x))
    return {0: tape.op("Concat", *parts, attributes=[ir.AttrInt64("axis", axis)])}


def _sliced(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """Zeros around it; of steps other than 1 a product with the matrix that picks the rows."""
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    shape, made = tape.shape(x), tape.shape(node.outputs[0])
    starts = [int(each) for each in tape.held(node.inputs[1]).reshape(-1)]
    axes = list(range(len(starts)))
    steps = [1] * len(starts)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = [int(each) % len(shape) for each in tape.held(node.inputs[3]).reshape(-1)]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = [int(each) for each in tape.held(node.inputs[4]).reshape(-1)]
    current = list(made)
    before = [0] * len(shape)
    after = [0] * len(shape)
    for axis, start, step in zip(axes, starts, steps, strict=True):
        first = min(max(start + shape[axis] if start < 0 else start, 0), shape[axis] - (step < 0))
        if step == 1:
            before[axis], after[axis] = first, shape[axis] - first - made[axis]
            continue
        rows = first + step * np.arange(made[axis])
        grad = _placed(tape, grad, current, axis, np.eye(shape[axis])[rows])
    return {0: _padded(tape, grad, before, after)}


def _placed(tape: Tape, grad: ir.Value, shape: list[int], axis: int, matrix: np.ndarray) -> ir.Value:
    """`grad`, of dimensions `shape`, with its rows along `axis` put where a matrix (rows, dimension) says."""
    lead, trail = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
    rows = tape.reshape(grad, [lead, shape[axis], trail])
    shape[axis] = matrix.shape[1]
    return tape.reshape(tape.op("MatMul", tape.const(matrix.T), rows), shape)


def _gathered(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """The rows put back where they were taken, those taken several times added: a product with a matrix of ones."""
    x, indices, grad = node.inputs[0], node.inputs[1], grads[0]
    if x is None or indices is None or grad is None or not tape.wants(x):
        return {}
    shape, taken = tape.shape(x), tape.shape(indices)
    axis = integer(node, "axis", 0) % len(shape)
    count = int(np.prod(taken, dtype=np.int64))
    lead, trail = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
    flat = tape.op("Reshape", indices, tape.const([count]), dtype=indices.dtype or ir.DataType.INT64)
    hot = tape.op(
        "OneHot",
        flat,
        tape.const(np.array([shape[axis]])),
        tape.const(np.array([0.0, 1.0])),
        attributes=[ir.AttrInt64("axis", 0)],
    )
    product = tape.op("MatMul", hot, tape.reshape(grad, [lead, count, trail]))
    return {0: tape.reshape(product, shape)}


def _padding(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    """What was put in is cut off again; negative pads cut, and are put in again."""
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    if text(node, "mode", "constant") != "constant" or (len(node.inputs) > 3 and node.inputs[3] is not None):
        raise Unknown
    pads = [int(each) for each in tape.held(node.inputs[1]).reshape(-1)]
    return {0: tape.op("Pad", grad, tape.const([-each for each in pads]))}


def _expanded(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    return {0: tape.unbroadcast(grad, tape.shape(node.outputs[0]), tape.shape(x))}


def _tiled(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    shape, made = tape.shape(x), tape.shape(node.outputs[0])
    split = [part for dim, all_of in zip(shape, made, strict=True) for part in (all_of // dim, dim)]
    return {0: tape.reshape(tape.sum(tape.reshape(grad, split), list(range(0, 2 * len(shape), 2))), shape)}


def _depth_to_space(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    x, grad = node.inputs[0], grads[0]
    if x is None or grad is None or not tape.wants(x):
        return {}
    block = integer(node, "blocksize", 1)
    batch, channels, height, width = tape.shape(x)
    apart = tape.reshape(grad, [batch, channels // block**2, height, block, width, block])
    columns_first = text(node, "mode", "DCR") == "CRD"
    perm = [0, 1, 3, 5, 2, 4] if columns_first else [0, 3, 5, 1, 2, 4]
    return {0: tape.reshape(tape.transpose(apart, perm), tape.shape(x))}


def _space_to_depth(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    if grad is None or not tape.wants(node.inputs[0]):
        return {}
    block = ir.AttrInt64("blocksize", integer(node, "blocksize", 1))
    return {0: tape.op("DepthToSpace", grad, attributes=[block])}


def _triangle(tape: Tape, node: ir.Node, grads: list[ir.Value | None]) -> dict[int, ir.Value]:
    grad = grads[0]
    if grad is None or not tape.wants(node.inputs[0]):
        return {}
    offset = node.inputs[1] if len(node.inputs) > 1 else None
    return {0: tape.op("Trilu", grad, offset, attributes=[ir.AttrInt64("upper", integer(node, "upper", 1))])}


RULES: dict[str, Adjoint] = {
    "Concat": _concatenated,
    "DepthToSpace": _depth_to_space,
    "Expand": _expanded,
    "Flatten": _reshaped,
    "Gather": _gathered,
    "Pad": _padding,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _reshaped,
    "Tile": _tiled,
    "Transpose": _transposed,
    "Trilu": _triangle,
    "Unsqueeze": _reshaped,
}
