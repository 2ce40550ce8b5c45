"""Fewer positions of what is computed again: enough for a norm, at a fraction of a layer's cost.

Most of what a layer costs a second time are its products. The error that rounding its weights makes has nearly the same size
everywhere in a layer, so every k-th position along the axes that share the weights gives its norm: rows of a product, pixels
of a convolution (which is the same convolution with k times its strides). k is odd, so that the positions go through
all phases of what an upsampling by 2 repeats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer, integers, text
from parityscope.arithmetic._graphs import constant_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Thinning", "thinning"]

# Chosen: with as many independent elements a norm is known to 1/sqrt(2 * 4096), one per cent.
_LEAST = 1 << 12
_STEPS = (7, 5, 3)
# Elements, chosen: smaller tensors are computed again sooner than their positions are taken out.
_WORTH = 1 << 15
_POSITIONS, _ALONG = 96, 4  # chosen: at least so many positions are left, and along each axis
_SLICE_OPSET = 10  # the first whose Slice has steps
_END = (1 << 63) - 1
_MATRIX = 2  # dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinning:
    """Every `step`-th position along `axes` of a node's output of `rank` dimensions."""

    axes: tuple[int, ...]
    step: int
    rank: int

    def node(self, node: ir.Node, inputs: Sequence[ir.Value | None], model: ir.Model) -> ir.Node:
        """`node` of `inputs` at these positions alone, in the main graph of `model`."""
        inputs = list(inputs)
        attributes = dict(node.attributes)
        if node.op_type == "Conv":
            weights = constant_tensor(inputs[1]) if inputs[1] is not None else None
            spatial = len(weights.shape) - 2 if weights is not None else 0
            strides = list(integers(node, "strides", (1,) * spatial))
            for axis in self.axes:
                strides[axis - 2] *= self.step
            attributes["strides"] = ir.AttrInt64s("strides", strides)
        elif inputs[0] is not None:
            inputs[0] = self._of(inputs[0], model)
        copy = ir.Node("", node.op_type, inputs, list(attributes.values()), num_outputs=1)
        copy.outputs[0].name = f"parityscope::thin::{node.outputs[0].name}"
        copy.outputs[0].type = node.outputs[0].type
        model.graph.append(copy)
        return copy

    def _of(self, value: ir.Value, model: ir.Model) -> ir.Value:
        """`value` at these positions."""
        count = len(self.axes)
        numbers = {"starts": [0] * count, "ends": [_END] * count, "axes": self.axes, "steps": [self.step] * count}
        constants = [_constant(model, title, each) for title, each in numbers.items()]
        made = ir.Node("", "Slice", [value, *constants], num_outputs=1)
        made.outputs[0].name = _fresh(f"parityscope::thinned::{value.name}", model)
        made.outputs[0].type = value.type
        model.graph.append(made)
        return made.outputs[0]


def thinning(node: ir.Node, shape: tuple[int, ...] | None, opset: int) -> Thinning | None:
    """Where a node whose output has `shape` (None: not known) is computed again; None for everywhere."""
    if shape is None or math.prod(shape) < _WORTH or opset < _SLICE_OPSET or node.domain:
        return None
    sharing = tuple(_axes(node, len(shape)))
    positions = math.prod(shape[axis] for axis in sharing)
    found = None
    for step in _STEPS:
        long = tuple(axis for axis in sharing if shape[axis] >= _ALONG * step)
        for axes in (long, long[-1:]):  # of small maps one axis alone leaves enough
            left = (
                positions // math.prod(shape[axis] for axis in axes) * math.prod(shape[axis] // step for axis in axes)
            )
            enough = left >= _POSITIONS and math.prod(shape) >= _LEAST * step ** len(axes)
            if axes and enough and (found is None or step ** len(axes) > found.step ** len(found.axes)):
                found = Thinning(axes=axes, step=step, rank=len(shape))
    return found


def _axes(node: ir.Node, rank: int) -> Sequence[int]:
    """The axes of the output along which nothing but data changes; none for operators that are computed whole."""
    tensors = [None if value is None else constant_tensor(value) for value in node.inputs]
    constants = [tensor.shape.numpy() for tensor in tensors[1:] if tensor is not None]
    if len(constants) != len(tensors) - 1 or tensors[0] is not None:
        return ()
    if node.op_type == "Conv":
        padded = text(node, "auto_pad", "NOTSET")
        return range(2, rank) if padded in {"NOTSET", "VALID"} and rank == len(constants[0]) else ()
    if node.op_type == "MatMul":
        return (rank - 2,) if len(constants[0]) == _MATRIX <= rank else ()
    if node.op_type == "Gemm":
        return (0,) if all(len(each) < _MATRIX for each in constants[1:]) and not integer(node, "transA", 0) else ()
    return ()


def _fresh(name: str, model: ir.Model) -> str:
    return f"{name}::{len(model.graph)}"


def _constant(model: ir.Model, title: str, numbers: Sequence[int]) -> ir.Value:
    name = f"parityscope::thin::{title}::{'_'.join(map(str, numbers))}"
    if name not in model.graph.initializers:
        tensor = ir.tensor(np.array(numbers, np.int64), name=name)
        made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([len(numbers)]), const_value=tensor)
        model.graph.register_initializer(made)
    return model.graph.initializers[name]
