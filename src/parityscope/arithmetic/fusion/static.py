"""Constants that are only moved (`Reshape(bias)`, `Transpose(weight)`) turned into constants, as every engine does first.

Exporters write the bias of a convolution as Reshape and Add, or the weight of a linear layer behind a Transpose. The
values keep their names; nothing is computed but where elements lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer_attribute
from parityscope.arithmetic._graphs import constant_tensor
from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fold_moved_constants"]

_MOVES = operators_that_move("in order") | {"Transpose"}


def fold_moved_constants(model: ir.Model) -> ir.Model:
    """`model` itself, edited: what such operators make of constants became initializers."""
    for node in list(model.graph):
        value = node.outputs[0] if node.outputs else None
        if node.op_type not in _MOVES or node.domain or value is None or not value.name:
            continue
        array = _move_constant(node)
        if array is None or value.is_graph_output():
            continue
        name = str(value.name)
        tensor = ir.tensor(array, name=name)
        made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        for user, index in list(value.uses()):
            user.replace_input_with(index, made)
        model.graph.remove(node, safe=True)
        model.graph.register_initializer(made)
    return model


def _move_constant(node: ir.Node) -> np.ndarray | None:
    """What `node` makes of a constant; None where an input is not one, or it asks for something unusual."""
    tensors = [None if value is None else constant_tensor(value) for value in node.inputs]
    if any(tensor is None and value is not None for tensor, value in zip(tensors, node.inputs, strict=True)):
        return None
    arrays = [tensor.numpy() for tensor in tensors if tensor is not None]
    data = arrays[0]
    axes = _integers_given(node, "axes") or ([int(axis) for axis in arrays[1].reshape(-1)] if len(arrays) > 1 else None)
    match node.op_type:
        case "Identity":
            return data
        case "Reshape":
            return _reshape_constant(data, axes or [], node)
        case "Squeeze":
            return np.squeeze(data, axis=None if axes is None else tuple(axes))
        case "Unsqueeze":
            return None if axes is None else np.expand_dims(data, tuple(axes))
        case "Transpose":
            return np.ascontiguousarray(np.transpose(data, _integers_given(node, "perm")))
        case "Flatten":
            axis = integer_attribute(node, "axis", 1)
            return data.reshape(int(np.prod(data.shape[:axis], dtype=np.int64)), -1)
    return None


def _reshape_constant(data: np.ndarray, shape: Sequence[int], node: ir.Node) -> np.ndarray | None:
    wanted = _integers_given(node, "shape") or list(shape)
    if not integer_attribute(node, "allowzero", 0):
        if any(dim == 0 and position >= data.ndim for position, dim in enumerate(wanted)):
            return None
        wanted = [data.shape[position] if dim == 0 else dim for position, dim in enumerate(wanted)]
    return data.reshape(wanted)


def _integers_given(node: ir.Node, name: str) -> list[int] | None:
    return [int(number) for number in node.attributes[name].as_ints()] if name in node.attributes else None
