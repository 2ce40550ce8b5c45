"""Arithmetic on values of a graph, written down as nodes: what the error model needs to become part of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic._graphs import Names

__all__ = ["Expressions"]


class Expressions:
    """Collects nodes (`taken` gives them back, in order) and the constants that they read.

    Sizes are plain numbers where the graph declares them, and scalars computed by the graph where it does not.
    """

    def __init__(self, model: ir.Model, names: Names) -> None:
        self._model = model
        self._names = names
        self._nodes: list[ir.Node] = []
        self._squares: dict[ir.Value, ir.Value] = {}

    def taken(self) -> list[ir.Node]:
        """The nodes collected since the last call."""
        nodes, self._nodes = self._nodes, []
        return nodes

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr] = (),
        *,
        name: str = "",
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """The first output of a new node of ONNX's own domain; it is called `name`, or something fresh."""
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        node.outputs[0].name = name or self._names.fresh("parityscope", op_type.lower())
        node.name = f"parityscope::{node.outputs[0].name}"
        node.outputs[0].type = ir.TensorType(dtype)
        self._nodes.append(node)
        return node.outputs[0]

    def number(self, number: float) -> ir.Value:
        """A float32 scalar."""
        return self._constant(np.array(number, np.float32), f"parityscope::{number!r}")

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """int64, one axis."""
        return self._constant(np.array(numbers, np.int64), f"parityscope::{list(numbers)!r}")

    def square(self, value: ir.Value) -> ir.Value:
        """The squares of a value's elements, computed once for all who ask."""
        if value not in self._squares:
            self._squares[value] = self.op("Mul", [value, value])
        return self._squares[value]

    def scaled(self, value: ir.Value, factor: float | ir.Value) -> ir.Value:
        """`value` times a number."""
        return self.op("Mul", [value, self.number(factor) if isinstance(factor, float) else factor])

    def total(self, *values: ir.Value) -> ir.Value:
        """The sum of values."""
        result = values[0]
        for value in values[1:]:
            result = self.op("Add", [result, value])
        return result

    def extent(self, value: ir.Value, axes: Sequence[int]) -> float | ir.Value:
        """The product of a value's sizes along `axes`."""
        dims = None if value.shape is None else [value.shape[axis] for axis in axes]
        if dims is not None and all(isinstance(dim, int) for dim in dims):
            return float(np.prod([int(str(dim)) for dim in dims], dtype=np.int64))
        whole = ir.DataType.INT64
        chosen = self.op("Gather", [self.op("Shape", [value], dtype=whole), self.integers(axes)], dtype=whole)
        return self._as_float(self.op("ReduceProd", [chosen], [ir.AttrInt64("keepdims", 0)], dtype=whole))

    def elements_for_each(self, value: ir.Value, axis: int) -> float | ir.Value:
        """How many elements `value` has for each index along `axis`."""
        if value.shape is not None:
            return self.extent(value, [each for each in range(len(value.shape)) if each != axis])
        size = self._as_float(self.op("Size", [value], dtype=ir.DataType.INT64))
        extent = self.extent(value, (axis,))
        return self.op("Div", [size, self.number(extent) if isinstance(extent, float) else extent])

    def ratio_of_sizes(self, value: ir.Value, other: ir.Value) -> ir.Value:
        """How many elements `value` has for each one of `other`; 0/0 where both are empty, and then nothing uses it."""
        sizes = [self._as_float(self.op("Size", [each], dtype=ir.DataType.INT64)) for each in (value, other)]
        return self.op("Div", sizes)

    def linear(self, size: float | ir.Value, slope: float, offset: float) -> float | ir.Value:
        """`slope` times a size plus `offset`."""
        if isinstance(size, float):
            return slope * size + offset
        return self.op("Add", [self.scaled(size, slope), self.number(offset)])

    def root(self, size: float | ir.Value) -> float | ir.Value:
        """The square root of a size."""
        return size**0.5 if isinstance(size, float) else self.op("Sqrt", [size])

    def _as_float(self, value: ir.Value) -> ir.Value:
        return self.op("Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))])

    def _constant(self, array: np.ndarray, name: str) -> ir.Value:
        initializers = self._model.graph.initializers
        if name not in initializers:
            tensor = ir.tensor(array, name=name)
            shape = ir.Shape(array.shape)
            made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
            self._model.graph.register_initializer(made)
        return initializers[name]
