"""The element type of every value of a graph, from what each operator's schema says about types.

The standard's own inference is asked node by node, of types alone: shapes and values are not needed, so this works where
shape inference gives up. Control flow takes its types from its bodies. What ONNX Runtime's own operators (domain
com.microsoft) give back follows its documentation (docs/ContribOperators.md); for other domains only what the model declares
is known.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import onnx
import onnx.shape_inference
import onnx_ir as ir

from parityscope.arithmetic.standard import key_of_schema, schema_called
from parityscope.case.graph import bodies_of_node
from parityscope.operators import CONTRIBUTED, STANDARD

# Operators of com.microsoft whose outputs all have the element type of their first input.
LIKE_FIRST_INPUT = frozenset(one.name for one in CONTRIBUTED.values() if one.typed_like == 0)


def infer_types(model: ir.Model) -> None:
    """Sets the type of every value whose type can be told; others keep what the model declares, or nothing."""
    _infer_graph(model.graph, model.opset_imports)


def _infer_graph(graph: ir.Graph, opsets: dict[str, int]) -> None:
    for node in graph:
        _type_body_inputs(node)
        for body in bodies_of_node(node):
            _infer_graph(body, opsets)
        for value, kind in zip(node.outputs, _output_types(node, opsets), strict=False):
            if kind is not None and value.type != kind and (value.type is None or value.dtype != kind.dtype):
                value.type = kind


def _type_body_inputs(node: ir.Node) -> None:
    """Gives the inputs of a Loop's or Scan's body the types of what is fed to them."""
    carries = STANDARD[node.op_type].carries if node.op_type in STANDARD else None
    if carries is None:
        return
    offset = carries[0]
    for body in bodies_of_node(node):
        for inner, outer in zip(body.inputs[offset:], node.inputs[offset:], strict=False):
            if inner.type is None and outer is not None:
                inner.type = outer.type


def _output_types(node: ir.Node, opsets: dict[str, int]) -> list[ir.TypeProtocol | None]:
    """The type of each output, as far as it can be told."""
    if inner := bodies_of_node(node):
        skipped = 1 if node.op_type == "Loop" else 0
        given = [value.type for value in inner[0].outputs[skipped:]]
        makes_sequences = node.op_type in STANDARD and STANDARD[node.op_type].gives == "sequence"
        return [ir.SequenceType(kind) if makes_sequences and kind is not None else kind for kind in given]
    schema = _schema_called(*key_of_schema(node, opsets))
    if schema is None:
        first = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
        known = first is not None and node.op_type in LIKE_FIRST_INPUT
        return [ir.TensorType(first)] * len(node.outputs) if known and first is not None else []
    if node.op_type == "Constant" and "value" in node.attributes:  # which may be gigabytes
        return [ir.TensorType(ir.DataType(node.attributes["value"].value.dtype))]
    pairs = [
        (value, *schema.inputs[min(place, len(schema.inputs) - 1)])
        for place, value in enumerate(node.inputs)
        if value is not None
    ]
    bound = {variable: value.type for value, variable, alike in reversed(pairs) if alike and value.type is not None}
    kinds = {str(value.name): value.type or bound.get(variable) for value, variable, _ in pairs}
    types = {name: ir.serde.serialize_type(kind) for name, kind in kinds.items() if kind is not None}
    try:
        # Of element types alone: what is not told of shapes cannot be wrong.
        found = onnx.shape_inference.infer_node_outputs(schema.known, ir.serde.serialize_node(node), types)
        told = (found.get(value.name or "") for value in node.outputs)
        return [None if one is None else ir.serde.deserialize_type_proto_for_type(one) for one in told]
    except Exception:  # noqa: BLE001 - it asks for more than types
        return [bound.get(variable) for variable in schema.outputs]


class _Schema(NamedTuple):
    """A schema; of each input the variable of its type and whether all it stands for share that, of each output the variable."""

    known: onnx.defs.OpSchema
    inputs: tuple[tuple[str, bool], ...]
    outputs: tuple[str, ...]


@functools.cache  # a schema's lists are made anew each time that they are looked at
def _schema_called(op_type: str, version: int, domain: str) -> _Schema | None:
    schema = schema_called(op_type, version, domain)
    if schema is None:
        return None
    inputs = tuple((one.type_str, one.is_homogeneous) for one in schema.inputs)
    return _Schema(known=schema, inputs=inputs, outputs=tuple(one.type_str for one in schema.outputs))
