"""Edits of an ONNX graph, as plain functions `ModelProto -> None` that faults are put together from.

A node is named by its first output, because not every exporter names nodes. Bodies of If, Loop and Scan are searched as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]
Edit = Callable[[onnx.ModelProto], None]


def weight(name: str, change: Callable[[Array], Any]) -> Edit:
    """The initializer or Constant `name` becomes `change(its value)`, of the same shape and type, for all that read it."""

    def edit(model: onnx.ModelProto) -> None:
        tensor = _constant(model, name)
        value = numpy_helper.to_array(tensor)
        changed = np.broadcast_to(np.asarray(change(value.copy())), value.shape).astype(value.dtype)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))

    return edit


def operand(output: str, index: int, change: Callable[[Array], Any]) -> Edit:
    """As `weight`, for the node that writes `output` alone: its input `index` becomes a constant of its own."""

    def edit(model: onnx.ModelProto) -> None:
        graph, place = _node(model, output)
        value = numpy_helper.to_array(_constant(model, graph.node[place].input[index]))
        changed = np.asarray(change(value.copy()), value.dtype)
        own = f"{graph.node[place].input[index]}_{place}"
        graph.initializer.append(numpy_helper.from_array(changed.reshape(value.shape), own))
        graph.node[place].input[index] = own

    return edit


def attributes(output: str, **values: Any) -> Edit:
    """Attributes of the node that writes `output`."""

    def edit(model: onnx.ModelProto) -> None:
        graph, place = _node(model, output)
        node = graph.node[place]
        kept = [one for one in node.attribute if one.name not in values]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in values.items())

    return edit


def operator(output: str, op_type: str, **values: Any) -> Edit:
    """The node that writes `output` becomes another operator of the same inputs, with these attributes alone."""

    def edit(model: onnx.ModelProto) -> None:
        graph, place = _node(model, output)
        graph.node[place].op_type = op_type
        del graph.node[place].attribute[:]
        attributes(output, **values)(model)

    return edit


def inputs(output: str, names: dict[int, str]) -> Edit:
    """The node that writes `output` reads other tensors."""

    def edit(model: onnx.ModelProto) -> None:
        graph, place = _node(model, output)
        for index, name in names.items():
            graph.node[place].input[index] = name

    return edit


def identity(output: str, index: int = 0) -> Edit:
    """The node that writes `output` hands on its input `index`."""

    def edit(model: onnx.ModelProto) -> None:
        graph, place = _node(model, output)
        graph.node[place].input[:] = [graph.node[place].input[index]]
        operator(output, "Identity")(model)

    return edit


def after(tensor: str, op_type: str, *operands: Any, reader: str = "", **values: Any) -> Edit:
    """`op_type(tensor, *operands)` takes the tensor's place: for all readers, or only for the node that writes `reader`."""

    def edit(model: onnx.ModelProto) -> None:
        fresh = f"{tensor}_{op_type}"
        source, result = (tensor, fresh) if reader else (fresh, tensor)
        graph, place = _node(model, reader or tensor)
        names = [f"{fresh}_{index}" for index in range(len(operands))]
        graph.initializer.extend(map(numpy_helper.from_array, map(np.asarray, operands), names))
        made = onnx.helper.make_node(op_type, [source, *names], [result], fresh, **values)
        if reader:
            graph.node[place].input[:] = [fresh if one == tensor else one for one in graph.node[place].input]
        else:
            graph.node[place].output[:] = [fresh if one == tensor else one for one in graph.node[place].output]
        graph.node.insert(place if reader else place + 1, made)

    return edit


def swap_blocks(value: Array, axis: int, size: int) -> Array:
    """Neighbouring blocks of `size` along `axis` change places; what does not fill two blocks stays."""
    order = np.arange(value.shape[axis])
    whole = len(order) // (2 * size) * 2 * size
    order[:whole] = order[:whole].reshape(-1, 2, size)[:, ::-1].ravel()
    return np.take(value, order, axis)


def every_graph(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and the bodies inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from every_graph(attribute.g)


def _node(model: onnx.ModelProto, output: str) -> tuple[onnx.GraphProto, int]:
    for graph in every_graph(model.graph):
        for place, node in enumerate(graph.node):
            if output in node.output:
                return graph, place
    raise KeyError(output)


def _constant(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    held: list[onnx.TensorProto] = [
        one for graph in every_graph(model.graph) for one in graph.initializer if one.name == name
    ]
    if held:
        return held[0]
    graph, place = _node(model, name)
    made: onnx.TensorProto = graph.node[place].attribute[0].t
    return made
