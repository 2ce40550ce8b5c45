"""The element type of every value of a graph, from what each operator's schema says about types.

An ONNX operator names the types of its inputs and outputs by variables ("T"); an output has the type of an input with
the same variable, or the only type that its variable allows. A handful of operators say their type in an attribute,
and control flow takes it from its bodies. Shapes and values are not needed, so this works where shape inference gives
up. What ONNX Runtime's own operators (domain com.microsoft) give back follows its documentation
(docs/ContribOperators.md); for other domains only what the model declares is known.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from parityscope.arithmetic.standard import key_of_schema, schema_called
from parityscope.case.graph import bodies_of_node
from parityscope.errors import ParityError
from parityscope.operators import CONTRIBUTED, STANDARD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LIKE_FIRST_INPUT", "infer_types"]

# Operators of com.microsoft whose outputs all have the element type of their first input.
LIKE_FIRST_INPUT = frozenset(one.name for one in CONTRIBUTED.values() if one.typed_like == 0)
# Attributes that hold the element type of the first output, and what their absence or 0 means (None: as the input).
_SAID_BY_ATTRIBUTE: dict[str, tuple[str, ir.DataType | None]] = {
    one.name: (one.typed_by, ir.DataType[one.untyped] if one.untyped else None)
    for one in STANDARD.values()
    if one.typed_by
}
# Operators whose first output has the element type of an input although the variables differ: what goes into or
# comes out of a sequence or an optional.
_ELEMENTS = {one.name: one.typed_like for one in STANDARD.values() if one.typed_like is not None}
_MAKE_SEQUENCES = frozenset(one.name for one in STANDARD.values() if one.gives == "sequence")


def infer_types(model: ir.Model) -> None:
    """Sets the type of every value whose type can be told; others keep what the model declares, or nothing."""
    _infer_graph(model.graph, model.opset_imports)


def _infer_graph(graph: ir.Graph, opsets: dict[str, int]) -> None:
    for node in graph:
        _type_body_inputs(node)
        for body in bodies_of_node(node):
            _infer_graph(body, opsets)
        for index, (value, dtype) in enumerate(zip(node.outputs, _output_types(node, opsets), strict=False)):
            if dtype is not None and (value.type is None or value.dtype != dtype):
                value.type = _wrap_type(node, index, dtype)


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


def _output_types(node: ir.Node, opsets: dict[str, int]) -> list[ir.DataType | None]:
    """The element type of each output, as far as it can be told."""
    if inner := bodies_of_node(node):
        skipped = 1 if node.op_type == "Loop" else 0
        return [value.dtype for value in inner[0].outputs[skipped:]]
    schema = _schema_types(*key_of_schema(node, opsets))
    if schema is None:
        return [_input_type(node, 0)] * len(node.outputs) if node.op_type in LIKE_FIRST_INPUT else []
    bound = _bind_type_variables(node, schema)
    found = [_output_type(formal, bound, schema.allowed) for formal in _formals_of(schema.outputs, len(node.outputs))]
    if node.op_type == "LayerNormalization":  # mean and deviation, in the type they were computed in
        found[1:] = [_attribute_type(node, "stash_type") or ir.DataType.FLOAT] * (len(node.outputs) - 1)
    special = _special_type(node)
    return [special, *found[1:]] if special is not None else found


def _special_type(node: ir.Node) -> ir.DataType | None:
    """The type of the first output where an attribute says it, or an input in a way that variables do not."""
    if node.op_type in _SAID_BY_ATTRIBUTE:
        name, default = _SAID_BY_ATTRIBUTE[node.op_type]
        return _attribute_type(node, name) or default or _input_type(node, 0)
    if node.op_type in {"ConstantOfShape", "Constant"}:
        if "value" in node.attributes:
            return ir.DataType(node.attributes["value"].value.dtype)
        return ir.DataType.FLOAT if node.op_type == "ConstantOfShape" or _holds_floats(node) else None
    if node.op_type == "QuantizeLinear":
        return _attribute_type(node, "output_dtype")
    if node.op_type == "DequantizeLinear":
        return _attribute_type(node, "output_dtype") or _input_type(node, 1)
    return _input_type(node, _ELEMENTS[node.op_type]) if node.op_type in _ELEMENTS else None


def _attribute_type(node: ir.Node, name: str) -> ir.DataType | None:
    """The element type in an attribute; None where it is absent or 0."""
    number = node.attributes[name].as_int() if name in node.attributes else 0
    if number not in {*ir.DataType}:
        raise ParityError(
            f"node {node.name or node.op_type!r} asks for element type {number}, which ONNX does not have",
            fix="export the model again",
        )
    return ir.DataType(number) if number else None


def _holds_floats(node: ir.Node) -> bool:
    return "value_float" in node.attributes or "value_floats" in node.attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formal:
    """A formal parameter: the variable or the name of its type, whether all it stands for share that, and may be many."""

    type_str: str
    is_homogeneous: bool
    is_variadic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """What a schema says of types; `allowed` is what each variable may stand for."""

    inputs: tuple[_Formal, ...]
    outputs: tuple[_Formal, ...]
    allowed: Mapping[str, Sequence[str]]


@functools.cache  # a schema's lists are made anew each time that they are looked at
def _schema_types(op_type: str, version: int, domain: str) -> _Schema | None:
    schema = schema_called(op_type, version, domain)
    if schema is None:
        return None
    inputs, outputs = (
        tuple(
            _Formal(
                type_str=one.type_str,
                is_homogeneous=one.is_homogeneous,
                is_variadic=one.option == onnx.defs.OpSchema.FormalParameterOption.Variadic,
            )
            for one in formals
        )
        for formals in (schema.inputs, schema.outputs)
    )
    allowed = {each.type_param_str: tuple(each.allowed_type_strs) for each in schema.type_constraints}
    return _Schema(inputs=inputs, outputs=outputs, allowed=allowed)


def _bind_type_variables(node: ir.Node, schema: _Schema) -> dict[str, ir.DataType]:
    """Type variable -> element type, from the inputs."""
    bound: dict[str, ir.DataType] = {}
    for index, formal in enumerate(_formals_of(schema.inputs, len(node.inputs))):
        dtype = _input_type(node, index)
        if dtype is not None and formal is not None and formal.is_homogeneous:
            bound.setdefault(formal.type_str, dtype)
    return bound


def _output_type(
    formal: _Formal | None, bound: dict[str, ir.DataType], allowed: Mapping[str, Sequence[str]]
) -> ir.DataType | None:
    if formal is None:
        return None
    if formal.type_str in bound:
        return bound[formal.type_str]
    choices = allowed.get(formal.type_str, [formal.type_str])
    return _type_called(choices[0]) if len(choices) == 1 else None


def _formals_of(formals: tuple[_Formal, ...], count: int) -> list[_Formal | None]:
    """The formal parameter of each of `count` actual ones: the last one is repeated if it is variadic."""
    found: list[_Formal | None] = list(formals[:count])
    variadic = bool(formals) and formals[-1].is_variadic
    return found + [formals[-1] if variadic else None] * (count - len(found))


def _input_type(node: ir.Node, index: int) -> ir.DataType | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.type is None else value.dtype


def _wrap_type(node: ir.Node, index: int, dtype: ir.DataType) -> ir.TypeProtocol:
    """The type of an output with elements of `dtype`: a tensor, or what the operator wraps tensors in."""
    first = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if node.op_type in _MAKE_SEQUENCES:
        return ir.SequenceType(ir.TensorType(dtype))
    if (inner := bodies_of_node(node)) and (
        declared := inner[0].outputs[index + (node.op_type == "Loop")].type
    ) is not None:
        return declared
    if node.op_type == "Optional":
        return ir.OptionalType(first or ir.TensorType(dtype))
    if node.op_type == "OptionalGetElement" and isinstance(first, ir.OptionalType):
        return first.elem_type
    if node.op_type in {"Identity", "OptionalGetElement"} and first is not None:
        return first
    return ir.TensorType(dtype)


def _type_called(text: str) -> ir.DataType | None:
    """The element type that a schema calls "tensor(float)"; None for what is not a tensor."""
    if not text.startswith("tensor("):
        return None
    name = text[len("tensor(") : -1].upper()
    return ir.DataType[name] if name in ir.DataType.__members__ else None
