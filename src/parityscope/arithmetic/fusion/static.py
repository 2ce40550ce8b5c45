"""Constants that are only moved (`Reshape(bias)`, `Transpose(weight)`) turned into constants, as every engine does first.

Exporters write the bias of a convolution as Reshape and Add, or the weight of a linear layer behind a Transpose. The
values keep their names; nothing is computed but where elements lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant, redirect_uses
from parityscope.case.graph import constant_value
from parityscope.operators import operators_that_move

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

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
        made = add_constant(model.graph, array, str(value.name))
        redirect_uses(list(value.uses()), made)
        model.graph.remove(node, safe=True)
    return model


def _move_constant(node: ir.Node) -> np.ndarray | None:
    """What `node` makes of a constant; None where an input is not one, or it asks for something unusual."""
    tensors = [None if value is None else constant_value(value) for value in node.inputs]
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
            axis = node.attributes.get_int("axis", 1)
            return data.reshape(int(np.prod(data.shape[:axis], dtype=np.int64)), -1)
    return None


def _reshape_constant(data: np.ndarray, shape: Sequence[int], node: ir.Node) -> np.ndarray | None:
    wanted = _integers_given(node, "shape") or list(shape)
    if not node.attributes.get_int("allowzero", 0):
        if any(dim == 0 and position >= data.ndim for position, dim in enumerate(wanted)):
            return None
        wanted = [data.shape[position] if dim == 0 else dim for position, dim in enumerate(wanted)]
    return data.reshape(wanted)


def _integers_given(node: ir.Node, name: str) -> list[int] | None:
    return [int(number) for number in node.attributes[name].as_ints()] if name in node.attributes else None
