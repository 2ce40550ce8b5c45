"""Where the nodes of a backward pass are written: names, shapes that are known, constants that are made once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._graphs import Names, constant_tensor
from parityscope.arithmetic.element_types import is_float32

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Tape", "Unknown"]


class Unknown(Exception):  # noqa: N818 - it reads as an answer: the adjoint of this node is unknown
    """There is no rule for what this node does, or for how it was asked to do it."""


@dataclass(slots=True, kw_only=True)
class Tape:
    """The backward nodes of `model` so far, in order.

    `shapes` are the dimensions of its values on the sample that the pass is for, by name: they are written into the
    nodes, so that a tape is good for samples of these shapes only.
    """

    model: ir.Model
    names: Names
    shapes: Mapping[str, Sequence[int]]
    nodes: list[ir.Node] = field(default_factory=list)
    made: int = 0
    _constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = field(default_factory=dict)

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        attributes: Sequence[ir.Attr] = (),
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """The first output of a new node."""
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1)
        output = node.outputs[0]
        self.made += 1  # in the name, so that no fresh one has to be looked for among thousands
        output.name = self.names.fresh(f"adjoint{self.made}", op_type.lower())
        output.type = ir.TensorType(dtype)
        node.name = output.name
        self.nodes.append(node)
        return output

    def wants(self, value: ir.Value | None) -> bool:
        """Whether anything asks for the adjoint of a value: a float32 tensor that is computed."""
        computed = value is not None and value.producer() is not None and constant_tensor(value) is None
        return computed and value is not None and is_float32(value)

    def shape(self, value: ir.Value | None) -> tuple[int, ...]:
        """The dimensions of a value.

        Raises:
            Unknown: nobody knows them, or there are no elements.
        """
        tensor = constant_tensor(value) if value is not None else None
        if tensor is not None:
            found = tuple(int(dim) for dim in tensor.shape.numpy())
        elif value is None or str(value.name) not in self.shapes:
            raise Unknown
        else:
            found = tuple(self.shapes[str(value.name)])
        if 0 in found:
            raise Unknown
        return found

    def held(self, value: ir.Value | None) -> np.ndarray:
        """The numbers of a constant.

        Raises:
            Unknown: it is computed.
        """
        tensor = constant_tensor(value) if value is not None else None
        if tensor is None:
            raise Unknown
        return np.asarray(tensor.numpy())

    def const(self, array: np.ndarray | float | Sequence[int]) -> ir.Value:
        """A constant: float32 of a float or of an array of floats, int64 of integers."""
        made = np.asarray(array)
        made = made.astype(np.int64 if made.dtype.kind in "iu" else np.float32)
        key = made.dtype.str, made.shape, made.tobytes()
        if key not in self._constants:
            tensor = ir.tensor(made, name=self.names.fresh(f"adjoint{len(self._constants)}", "constant"))
            value = ir.Value(
                name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(made.shape), const_value=tensor
            )
            self.model.graph.register_initializer(value)
            self._constants[key] = value
        return self._constants[key]

    def mul(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.op("Mul", one, other)

    def add(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.op("Add", one, other)

    def sub(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.op("Sub", one, other)

    def div(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.op("Div", one, other)

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        if 0 in shape:  # Reshape reads a 0 as "as it was"
            raise Unknown
        return self.op("Reshape", value, self.const(np.array(shape, np.int64)))

    def expand(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        return self.op("Expand", value, self.const(np.array(shape, np.int64)))

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        return self.op("Transpose", value, attributes=[ir.AttrInt64s("perm", list(perm))])

    def sum(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """The sum over `axes`, which stay as dimensions of 1; over none it is the value itself."""
        if not axes:
            return value
        kept = [ir.AttrInt64("keepdims", 1)]
        return self.op("ReduceSum", value, self.const(np.array(axes, np.int64)), attributes=kept)

    def mask(self, condition: ir.Value) -> ir.Value:
        """1 where a boolean holds and 0 elsewhere."""
        return self.op("Cast", condition, attributes=[ir.AttrInt64("to", int(ir.DataType.FLOAT))])

    def compare(self, op_type: str, one: ir.Value, other: ir.Value) -> ir.Value:
        """1 where the comparison holds and 0 elsewhere."""
        return self.mask(self.op(op_type, one, other, dtype=ir.DataType.BOOL))

    def unbroadcast(self, value: ir.Value, made: Sequence[int], shape: Sequence[int]) -> ir.Value:
        """The adjoint of broadcasting `shape` to `made`: `value`, of dimensions `made`, summed back."""
        if tuple(made) == tuple(shape):
            return value
        lead = len(made) - len(shape)
        axes = [axis for axis in range(len(made)) if axis < lead or (shape[axis - lead] == 1 and made[axis] != 1)]
        return self.reshape(self.sum(value, axes), shape)
