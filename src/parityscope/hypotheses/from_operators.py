"""Another operator in the place of a step, and the operator as the standard composes it of others."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx import helper, numpy_helper

from parityscope.evaluation.program import compile_program
from parityscope.hypotheses.changes import round_to_format
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.schemas import TEXT, changed_node, quoted_words, schema_of, versions_of
from parityscope.operators import STANDARD, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.hypotheses.edits import Arrays
    from parityscope.hypotheses.stretch import ComputedStretch

# What is no function of numbers alone, or no single one.
_NO_FUNCTIONS = (
    of_kind("random", "control flow", "sequence", "text") - {"TfIdfVectorizer"}
    | {"Constant", "ConstantOfShape"}
    | {"Dropout", "ReverseSequence"}
)
_MOST_CHOICES = 8
_MOST_GROWN = 64  # times what it is computed from; chosen
_LENGTHS = 64  # of an input that says lengths or axes, at most; chosen
_HANDS_ON = with_trait("computes nothing")


def relative_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """The operators of the same kind (activations, roundings, poolings ...) that take these inputs: few, and easily confused."""
    present, others, kind = _choices_for(node)
    yield from _replacements(stretch, place, node, present, [one for one in others if one.name in kind], 2)


def operator_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Every other operator of the standard that takes these inputs, or the first of them, with its modes."""
    present, others, kind = _choices_for(node)
    for count in sorted({len(present), 1, 2, 3} & set(range(1, len(present) + 1)), reverse=True):
        told = kind if count == len(present) else frozenset()  # as relatives
        left = [one for one in others if one.name not in told]
        yield from _replacements(stretch, place, node, present[:count], left, 5)


def _choices_for(node: onnx.NodeProto) -> tuple[list[int], tuple[Any, ...], frozenset[str]]:
    """The inputs that a node has, the schemas of all other operators, and the names of its kind."""
    record = STANDARD.get(node.op_type)
    present = [index for index, name in enumerate(node.input) if name]
    kind = of_kind(record.kind) if record is not None and not node.domain else frozenset()
    return present, _other_operators(node.op_type), kind


@cache
def _other_operators(op_type: str) -> tuple[Any, ...]:
    """The schemas of all operators of the standard that are functions of their inputs, but one."""
    return tuple(
        schema
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain and schema.name != op_type and not schema.deprecated and schema.name not in _NO_FUNCTIONS
    )


def _replacements(
    stretch: ComputedStretch,
    place: int,
    node: onnx.NodeProto,
    reads: Sequence[int],
    schemas: Sequence[Any],
    least: float,
) -> Iterator[StretchEdit]:
    """Those of `schemas` that take the inputs `reads` of a node, in its place; `least` bits beside which one it is."""
    count, present = len(reads), sum(1 for name in node.input if name)
    fitting = [schema for schema in schemas if count and schema.min_input <= count <= schema.max_input]
    bits = least + math.log2(max(1, len(fitting)))
    for schema in fitting:
        made = helper.make_node(schema.name, [f"i{index}" for index in range(count)], ["o"])
        current = schema_of(made, stretch.context.opsets)
        known = current if current is not None else schema
        made.attribute.extend(
            one
            for one in node.attribute
            if one.name in known.attributes and one.type == _attribute_type(known, one.name)
        )
        if not _accepts(known, made, [stretch.value(0, node.input[index]) for index in reads]):
            continue
        choices = [
            (name, word)
            for name, spec in known.attributes.items()
            if _attribute_type(known, name) == TEXT
            for word in quoted_words(spec.description)
        ][:_MOST_CHOICES]
        for choice in (None, *choices):
            with_mode = f" with {choice[0]} {choice[1]}" if choice else ""
            only = f", of its first {count} inputs" if count < present else ""
            yield StretchEdit(
                words=f"{schema.name}{with_mode}{only} in place of {node.op_type}",
                bits=bits + 2 * bool(choice),
                at=place,
                node=changed_node(made, *choice) if choice else made,
                opset=None if current is not None else schema.since_version,
                before=_keep_first_inputs([*reads]),
                reads=tuple(reads),
            )


def _accepts(schema: Any, node: onnx.NodeProto, arrays: Sequence[np.ndarray | None]) -> bool:
    """Whether an operator that is a function of others can be computed of these inputs without growing in between.

    Along each axis it may make what is longer of input and result before it cuts: CenterCropPad of lengths (44100, 1) to
    (1, 44100) took 35 s and 8 GB.
    """
    if not (schema.has_function or schema.has_context_dependent_function) or any(array is None for array in arrays):
        return True
    held = [np.asarray(array) for array in arrays]
    types = {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(node.input, held, strict=True)
    }
    data = {
        name: numpy_helper.from_array(array, name)
        for name, array in zip(node.input, held, strict=True)
        if array.dtype == np.int64 and array.size <= _LENGTHS
    }
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data)
    except Exception:  # noqa: BLE001 - it says so by exceptions of its own
        return False
    given = [[dim.dim_value for dim in one.tensor_type.shape.dim] for one in found.values()]
    between = [np.maximum(array.shape, shape).prod() for array in held for shape in given if len(shape) == array.ndim]
    return max(between, default=0) <= _MOST_GROWN * max(array.size for array in held)


def _attribute_type(schema: Any, attribute: str) -> int:
    return int(schema.attributes[attribute].type)


def _keep_first_inputs(indices: list[int]) -> Any:
    def before(arrays: Arrays) -> Arrays:
        return [arrays[index] for index in indices]

    return before


def expansion_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """The standard's function body of an operator with an inner result rounded, or an inner node left out."""
    if len(stretch.steps) > 1 or place:
        return
    found = _function_body(stretch, node)
    if found is None:
        return
    body, version = found
    inner = [index for index, one in enumerate(body.node) if one.op_type not in _HANDS_ON]
    expansion = _Expansion(stretch, node, body, version)
    for name in ("float16", "bfloat16"):
        yield StretchEdit(
            words=f"every inner result of {node.op_type} rounded to {name}",
            bits=8,
            whole=lambda _, sample, n=name: expansion.run(sample, rounding=n),
        )
    for index in inner:
        one = body.node[index]
        bits = 8 + math.log2(len(inner))
        yield StretchEdit(
            words=f"inside {node.op_type} the result of {one.op_type} ({one.output[0]}) rounded to float16",
            bits=bits,
            whole=lambda _, sample, i=index: expansion.run(sample, rounding="float16", only=i),
        )
        for entry in range(len(one.input)):
            yield StretchEdit(
                words=f"inside {node.op_type} {one.op_type} (which makes {one.output[0]}) left out",
                bits=bits,
                whole=lambda _, sample, i=index, e=entry: expansion.run(sample, left_out=(i, e)),
            )


def _function_body(stretch: ComputedStretch, node: onnx.NodeProto) -> tuple[onnx.FunctionProto, int] | None:
    versions = versions_of(node)
    if not versions:
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, max(versions), node.domain)
    body = onnx.FunctionProto()
    try:
        if schema.has_function:
            version = max(schema.function_opset_versions)
            body.ParseFromString(schema.get_function_with_opset_version(version))
        elif schema.has_context_dependent_function:
            version = max(schema.context_dependent_function_opset_versions)
            types = [_type_message(stretch, name) for name in node.input]
            written = node.SerializeToString()
            body.ParseFromString(schema.get_context_dependent_function_with_opset_version(version, written, types))
        else:
            return None
    except (RuntimeError, ValueError, KeyError):
        return None
    versions_named = [entry.version for entry in body.opset_import if not entry.domain]
    return body, max([version, *versions_named])


def _type_message(stretch: ComputedStretch, name: str) -> bytes:
    array = stretch.value(0, name) if name else None
    if array is None:
        return b""
    kind = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    return bytes(kind.SerializeToString())


class _Expansion:
    """A function body on what the operator reads."""

    def __init__(self, stretch: ComputedStretch, node: onnx.NodeProto, body: onnx.FunctionProto, version: int) -> None:
        self.stretch, self.node, self.body = stretch, node, body
        schema = onnx.defs.get_schema(node.op_type, max(versions_of(node)), node.domain)
        given: dict[str, onnx.AttributeProto] = {one.name: one for one in body.attribute_proto}
        given |= {name: spec.default_value for name, spec in schema.attributes.items() if spec.default_value.type}
        given |= {one.name: one for one in node.attribute}
        nodes = [_resolve_references(one, given) for one in body.node]
        self.constants = {
            one.output[0]: _constant_value(one) for one in nodes if one.op_type == "Constant" and one.attribute
        }
        graph = onnx.GraphProto(name="body", node=[one for one in nodes if one.op_type != "Constant"])
        names = {name for one in graph.node for name in one.input if name} - {
            o for one in graph.node for o in one.output
        }
        graph.input.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
        made_there = {
            name for one in graph.node for name in one.output
        }  # outputs that nobody asks for are not all made
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in body.output if name in made_there)
        opsets = [onnx.OperatorSetIdProto(domain="", version=version)]
        made = ir.from_proto(onnx.ModelProto(ir_version=10, graph=graph, opset_import=opsets))
        self.program = compile_program(made)
        self.places = {tuple(one.output): index for index, one in enumerate(nodes)}

    def run(
        self, sample: int, *, rounding: str = "", only: int | None = None, left_out: tuple[int, int] | None = None
    ) -> np.ndarray:
        (step,) = self.stretch.steps
        given = [self.stretch.value(sample, name) if name else None for name in step.inputs]
        values: dict[str, Any] = dict(zip(self.body.input, given, strict=False)) | self.constants
        change = round_to_format(rounding) if rounding else None
        for inner in self.program.steps:
            index = self.places[inner.outputs]
            if left_out is not None and left_out[0] == index:
                values[inner.outputs[0]] = values[inner.inputs[left_out[1]]]
                continue
            results = self.stretch.sessions.run(
                inner, [values.get(name) if name else None for name in inner.inputs], self.program
            )
            for name, array in zip(inner.outputs, results, strict=True):
                narrow = (
                    change is not None and only in (None, index) and array is not None and array.dtype == np.float32
                )
                values[name] = change(array) if narrow and change is not None else array
        place = list(step.outputs).index(self.stretch.context.output)
        return np.asarray(values[self.body.output[place]])


def _resolve_references(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node with attributes of the function put in for what refers to them."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for one in node.attribute:
        if not one.ref_attr_name:
            copy.attribute.append(one)
        elif one.ref_attr_name in given:
            made = onnx.AttributeProto()
            made.CopyFrom(given[one.ref_attr_name])
            made.name = one.name
            copy.attribute.append(made)
    return copy


def _constant_value(node: onnx.NodeProto) -> np.ndarray:
    value = helper.get_attribute_value(node.attribute[0])
    if isinstance(value, onnx.TensorProto):
        return np.asarray(numpy_helper.to_array(value))
    kind = np.float32 if node.attribute[0].name in {"value_float", "value_floats"} else np.int64
    return np.asarray(value, kind)
