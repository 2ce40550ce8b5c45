"""Gives a value in another element type: by one Cast a value and type, or by a converted copy of a constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic.graphs import Names, prepend_nodes
from parityscope.arithmetic.typed.constants import HALF, RoundingLoss, fixed_constant, low_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Casting"]

_SHORT = {dtype: name for name, dtype in HALF.items()} | {ir.DataType.FLOAT: "f32", ir.DataType.DOUBLE: "f64"}


@dataclass(slots=True, kw_only=True)
class Casting:
    """The Casts and copies that were needed so far; `losses` is what converting constants destroyed."""

    names: Names
    casts: dict[tuple[ir.Value, ir.DataType], ir.Node] = field(default_factory=dict)
    copies: dict[tuple[ir.Value, ir.DataType], ir.Value] = field(default_factory=dict)
    losses: list[RoundingLoss] = field(default_factory=list)

    def as_type(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` with elements of `dtype`."""
        if value.dtype == dtype:
            return value
        tensor = fixed_constant(value)
        if tensor is not None and dtype in _SHORT and _SHORT[dtype] in HALF:
            return self._copy_constant(value, tensor, dtype)
        if (value, dtype) not in self.casts:
            node = cast_node(value, dtype, self.names.fresh(value.name, _SHORT[dtype]))
            producer = value.producer()
            if producer is not None:
                producer.append(node)
            elif value.graph is not None:
                prepend_nodes(value.graph, [node])
            else:
                raise ValueError(f"{value.name} belongs to no graph")
            self.casts[value, dtype] = node
        return self.casts[value, dtype].outputs[0]

    def settle(self) -> None:
        """Removes constants that only their copies are read of; one copy takes the name."""
        for value, copy in self._unread_constants():
            name = str(value.name)
            graph, producer = value.graph, value.producer()
            if graph is None:
                raise ValueError(f"{name} belongs to no graph")
            if producer is not None:
                graph.remove(producer)
            else:
                graph.initializers.pop(name)
            copy.name = name

    def _copy_constant(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.Value:
        if (value, dtype) not in self.copies:
            low, loss = low_tensor(tensor, _SHORT[dtype], str(value.name))
            self.losses.append(loss)
            self.copies[value, dtype] = _place_constant(value, low, self.names.fresh(value.name, _SHORT[dtype]))
        return self.copies[value, dtype]

    def _unread_constants(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        seen: set[ir.Value] = set()
        for (value, _), copy in self.copies.items():
            if value not in seen and not value.uses() and not value.is_graph_output():
                seen.add(value)
                yield value, copy


def cast_node(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    """A Cast of `value` whose output is called `name`."""
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], num_outputs=1, name=f"typed::{name}")
    node.outputs[0].name = name
    node.outputs[0].type = ir.TensorType(dtype)
    node.outputs[0].shape = value.shape
    return node


def _place_constant(value: ir.Value, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    """A constant of the same kind as `value`, in its graph."""
    graph, producer = value.graph, value.producer()
    if graph is None:
        raise ValueError(f"{value.name} belongs to no graph")
    if producer is None:
        made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=value.shape, const_value=tensor)
        graph.register_initializer(made)
        return made
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1, name=producer.name)
    node.outputs[0].name = name
    node.outputs[0].type = ir.TensorType(tensor.dtype)
    node.outputs[0].shape = value.shape
    producer.append(node)
    return node.outputs[0]
