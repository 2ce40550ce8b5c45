"""Graphs that share the message they were made of: a tensor that is renamed lets the message be.

`onnx_ir` wraps the tensors of a message and writes a new name into it, which every other graph of that message would get. Nothing
else that is done to a graph reaches its message.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir


class _Shared(ir.serde.TensorProtoTensor):
    """A tensor of a message that is not its own; with another name it becomes a copy."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self._proto.name

    @name.setter
    def name(self, value: str | None) -> None:
        if (value or "") == self._proto.name:
            return
        own = onnx.TensorProto()
        own.CopyFrom(self._proto)
        own.name = value or ""
        self._proto = own


def leave_message_alone(model: ir.Model) -> None:
    """Lets tensors of `model`, which was just made of a message, be renamed without the message being changed."""
    graphs = [*model.graphs(), *(inner for one in model.functions.values() for inner in one.subgraphs())]
    for graph in graphs:
        for value in graph.initializers.values():
            _let_alone(value.const_value)
    for node in (node for one in (*graphs, *model.functions.values()) for node in one):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR:
                _let_alone(attribute.value)


def _let_alone(tensor: object) -> None:
    if type(tensor) is ir.serde.TensorProtoTensor:
        tensor.__class__ = _Shared
