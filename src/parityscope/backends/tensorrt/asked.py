"""What types the nodes of a model were asked for, and the layers of an engine that have others.

In a strongly typed network the file's own types are the request; in a weakly typed one only `layers=NAME:f32` is (a precision
flag allows, it does not ask). A fused layer shows the type that it writes. It is held against the nodes in it: where none
of them was asked for the type that the layer writes, and one was asked for a wider one, the request was not met.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.precisions import wanted_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.records import ExecutedGraph, ExecutedLayer

# How wide a format is: its significand, and its range where that is equal.
_WIDTHS = MappingProxyType({"f8e5m2": 1, "f8e4m3": 2, "int8": 2, "bf16": 3, "f16": 4, "f32": 5})
_TYPES = MappingProxyType(
    {"FLOAT": "f32", "FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT8E4M3FN": "f8e4m3", "FLOAT8E5M2": "f8e5m2"}
)


def asked_of(message: Any, options: TensorrtOptions) -> dict[str, str]:
    """The format that each node of `message` was asked for, by name; nodes of integers and unknown types are left out.

    A QuantizeLinear asks for eight bits where it stands, so that a kernel that ends in it writes what it was asked for.
    """
    if options.typing == "weak":
        found = {node.name: wanted_of(node.name, options.layers) for node in message.graph.node}
        return {name: precision for name, precision in found.items() if precision}
    types = _value_types(message)
    found = {
        node.name: types[output]
        for node in message.graph.node
        for output in node.output[:1]
        if output in types and node.op_type != "Constant"
    }
    eight = {node.name: "int8" for node in message.graph.node if node.op_type == "QuantizeLinear"}
    return {**eight, **found}


def requested_of(asked: Mapping[str, str], precision: str) -> str:
    """What a whole engine was asked for: the flag that was given, else the narrowest format that any node was asked for."""
    # Eight bits between QuantizeLinear and DequantizeLinear are the file's own arithmetic, on both sides.
    return precision or min(set(asked.values()) - {"int8"}, key=lambda name: _WIDTHS.get(name, 5), default="f32")


def tell_types_asked(graph: ExecutedGraph, asked: Mapping[str, str]) -> ExecutedGraph:
    """The executed graph whose layers say what their nodes were asked for.

    A kernel may compute in a narrow type that it was asked for and write a wider one. Where every request was met, the engine
    executes the narrowest of them.
    """
    layers = tuple(replace(layer, asked=_widest_type_asked(layer, asked)) for layer in graph.layers)
    met = graph.requested in asked.values() and not layers_below_request(layers)
    wider = _WIDTHS.get(graph.executed, 0) > _WIDTHS.get(graph.requested, 0)
    return replace(graph, layers=layers, executed=graph.requested if met and wider else graph.executed)


def layers_below_request(layers: Iterable[ExecutedLayer]) -> tuple[ExecutedLayer, ...]:
    """The layers that write a narrower format than their nodes were asked for."""
    return tuple(
        layer
        for layer in layers
        if layer.asked and layer.stored in _WIDTHS and _WIDTHS[layer.stored] < _WIDTHS.get(layer.asked, 0)
    )


def _widest_type_asked(layer: ExecutedLayer, asked: Mapping[str, str]) -> str:
    formats = {asked[node] for node in layer.nodes if node in asked}
    if layer.stored == "int8" and "int8" in asked.values():
        return "int8"  # TensorRT moves quantizers over what commutes with them, as a MaxPool does
    if layer.stored in formats:
        return layer.stored
    return max(formats, key=lambda name: _WIDTHS.get(name, 0), default="")


def _value_types(message: Any) -> dict[str, str]:
    """The floating-point format of each value of the main graph that ONNX's inference can type."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(message).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        graph = message.graph
    words = onnx.TensorProto.DataType
    found = {}
    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type.elem_type
        if kind and (form := _TYPES.get(words.Name(kind))):
            found[value.name] = form
    return found
