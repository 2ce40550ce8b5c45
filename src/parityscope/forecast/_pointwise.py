"""Which nodes a chain computes itself: pointwise ones of which all but one input are constants or of a known shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, number
from parityscope.arithmetic._graphs import constant_tensor
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.forecast.programs import Code, Operand

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pointwise", "pointwise"]

Shape = tuple[int, ...]
_BINARY = {"Add": Code.ADD, "Sub": Code.SUB, "Mul": Code.MUL, "Div": Code.DIV}
_TURNED = {Code.ADD: Code.ADD, Code.SUB: Code.FROM, Code.MUL: Code.MUL, Code.DIV: Code.UNDER}
_PARAMETERS = 5  # inputs of BatchNormalization


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pointwise:
    """A node: its input `main` has the shape of its output, `others` are constants or computed tensors."""

    node: ir.Node
    code: Code
    main: ir.Value
    others: tuple[Operand | ir.Value, ...]

    @property
    def reads(self) -> list[ir.Value]:
        """The computed tensors among its inputs."""
        return [self.main, *(each for each in self.others if isinstance(each, ir.Value))]


def pointwise(node: ir.Node, shape: Shape, shape_of: Callable[[ir.Value], Shape | None]) -> Pointwise | None:
    """A node whose output has `shape`; None if it is not one that a chain computes.

    `shape_of` says which shape a computed tensor has; None for not known.
    """
    inputs = [value for value in node.inputs if value is not None]
    if node.domain or len(node.outputs) != 1 or not inputs or inputs[0] is not node.inputs[0]:
        return None
    if node.op_type in _BINARY and not node.attributes and len(inputs) == 2:
        return _binary(node, inputs, shape, shape_of)
    if shape_of(inputs[0]) != shape:
        return None
    if node.op_type == "Relu":
        return Pointwise(node=node, code=Code.MAX, main=inputs[0], others=(Operand(constant=np.zeros(1, np.float32)),))
    if node.op_type == "Clip" and not node.attributes:
        return _clip(node, shape)
    if node.op_type == "BatchNormalization" and len(inputs) == _PARAMETERS and len(shape) > 1:
        return _normalization(node, inputs, shape)
    return None


def _binary(
    node: ir.Node, inputs: list[ir.Value], shape: Shape, shape_of: Callable[[ir.Value], Shape | None]
) -> Pointwise | None:
    code = _BINARY[node.op_type]
    first, second = inputs
    for main, other, turned in ((first, second, code), (second, first, _TURNED[code])):
        if shape_of(main) == shape:
            beside = _operand(other, shape, shape_of)
            if beside is not None:
                return Pointwise(node=node, code=turned, main=main, others=(beside,))
    return None


def _operand(value: ir.Value, shape: Shape, shape_of: Callable[[ir.Value], Shape | None]) -> Operand | ir.Value | None:
    """An input that changes along one run of axes at most, constant or not."""
    held = _numbers(value)
    if held is not None:
        return _constant(held, shape)
    own = shape_of(value)
    return value if own is not None and _lies_under(own, shape) else None


def _constant(held: np.ndarray, shape: Shape) -> Operand | None:
    if held.size == 1 and held.ndim <= len(shape):
        return Operand(constant=held.reshape(1))
    axes = [axis for axis in range(1, held.ndim + 1) if held.shape[-axis] > 1]
    if held.ndim > len(shape) or len(axes) != 1 or held.size != shape[-axes[0]]:
        return None
    return Operand(constant=held.reshape(-1), trailing=axes[0] - 1)


def _lies_under(own: Shape, shape: Shape) -> bool:
    """Whether a tensor is broadcast to `shape` so that what it changes along lies side by side."""
    if len(own) > len(shape):
        return False
    padded = (1,) * (len(shape) - len(own)) + own
    moving = [axis for axis, (one, whole) in enumerate(zip(padded, shape, strict=True)) if one > 1 or one == whole]
    real = [axis for axis in moving if padded[axis] > 1]
    if any(padded[axis] not in {1, shape[axis]} for axis in range(len(shape))):
        return False
    return not real or all(axis in moving for axis in range(real[0], real[-1] + 1))


def _clip(node: ir.Node, shape: Shape) -> Pointwise | None:
    main = node.inputs[0]
    limits: list[Operand | None] = []
    for value in (*node.inputs[1:], None, None)[:2]:
        held = None if value is None else _numbers(value)
        if value is not None and (held is None or held.size != 1 or np.isnan(held).any()):
            return None
        limits.append(None if held is None else _constant(held.reshape(()), shape))
    low, high = limits
    if main is None or (low is None and high is None):
        return None
    if low is not None and high is not None:
        return Pointwise(node=node, code=Code.CLIP, main=main, others=(low, high))
    one = low if low is not None else high
    code = Code.MAX if low is not None else Code.MIN
    return None if one is None else Pointwise(node=node, code=code, main=main, others=(one,))


def _normalization(node: ir.Node, inputs: list[ir.Value], shape: Shape) -> Pointwise | None:
    """BatchNormalization in inference, as ONNX Runtime's kernel computes it: a product and a sum for each channel."""
    if integer(node, "training_mode", 0):
        return None
    held = [_numbers(value) for value in inputs[1:]]
    if any(each is None or each.shape != (shape[1],) for each in held):
        return None
    scale, bias, mean, variance = (each for each in held if each is not None)
    epsilon = np.float32(number(node, "epsilon", DEFAULT_EPSILON))
    with np.errstate(all="ignore"):
        factor = scale * (np.float32(1) / np.sqrt(variance + epsilon))
        shift = bias - mean * factor
    trailing = len(shape) - 2
    return Pointwise(
        node=node,
        code=Code.SCALE,
        main=inputs[0],
        others=(Operand(constant=factor, trailing=trailing), Operand(constant=shift, trailing=trailing)),
    )


def _numbers(value: ir.Value) -> np.ndarray | None:
    """The float32 elements of a constant."""
    tensor = constant_tensor(value)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    return np.ascontiguousarray(tensor.numpy())
