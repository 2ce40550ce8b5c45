"""What ONNX's standard says of an operator, as far as hypotheses are made of it."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

_ROLE = re.compile(
    r"(?i)bias|weight|scale|zero.point|mean|variance|epsilon|mask|initial\w* (?:hidden|cell)|lengths?|indices"
)
_QUOTED = re.compile(r"([\"'`]+)([A-Za-z_]\w+)[\"'`]+")
_SHAPED = re.compile(r"\b[A-Z][A-Z_]+\b|\b(?:[A-Z][a-z]+)+\b|\b[a-z]+_[a-z_]+\b")
_MOST_WORDS = 60
_SHOWN = 8  # entries of a list
_LENGTHS = 64  # entries of an input that may say shapes, axes or sizes


def schema_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Any | None:
    """The schema of a node's operator; None for what the standard does not know."""
    try:
        return onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def _versions_by_operator() -> dict[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}


def versions_of(node: onnx.NodeProto) -> tuple[int, ...]:
    """The opsets in which the operator's meaning was written down."""
    return _versions_by_operator().get((node.domain, node.op_type), ())


@functools.cache  # one text serves every node of its operator
def quoted_words(text: str) -> tuple[str, ...]:
    """Words that a description gives as values: in quotes, or written as names are."""
    return tuple(dict.fromkeys([*(word for _, word in _QUOTED.findall(text)), *_SHAPED.findall(text)]))[:_MOST_WORDS]


def words_like(value: str, text: str) -> tuple[str, ...]:
    """Words that stand in a description in the same quotes as a value; where it stands in none, names in capitals as it is."""
    pairs = _QUOTED.findall(text)
    quotes = {quote for quote, word in pairs if word == value}
    if quotes or not value.isupper():
        return tuple(dict.fromkeys(word for quote, word in pairs if quote in quotes))
    return tuple(word for word in quoted_words(text) if word.isupper())


def gives_decisions(schema: Any | None) -> bool:
    """Whether an operator's first result can be no real number: what it reads as numbers are compared."""
    return schema is not None and bool(schema.outputs) and not any("float" in one for one in schema.outputs[0].types)


def attribute_value(node: onnx.NodeProto, name: str) -> Any:
    """The value of an attribute; None where it is not given."""
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), None)


def default_of(schema: Any | None, name: str) -> Any:
    """The standard's default of an attribute; None where it has none."""
    spec = None if schema is None else schema.attributes.get(name)
    return helper.get_attribute_value(spec.default_value) if spec is not None and spec.default_value.type else None


def changed_node(node: onnx.NodeProto, name: str, value: Any, kind: int | None = None) -> onnx.NodeProto:
    """The node with an attribute set to `value` of the type `kind` (None: guessed); left out where `value` is None."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    kept = [one for one in copy.attribute if one.name != name]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    if value is not None:
        made = helper.make_attribute(name, value, attr_type=kind) if kind else helper.make_attribute(name, value)
        copy.attribute.append(made)
    return copy


def input_label(node: onnx.NodeProto, index: int, schema: Any | None, *, constant: bool) -> str:
    """What an input is called: its kind, name in the standard, role, and the tensor's name."""
    formal = schema.inputs[min(index, len(schema.inputs) - 1)] if schema is not None and schema.inputs else None
    name = formal.name if formal is not None else str(index)
    role = _ROLE.search(formal.description) if formal is not None and index else None
    said = f", {role[0].lower()}" if role and role[0].lower() not in name.lower() else ""
    return f"{'constant' if constant else 'input'} {name}{said} ({node.input[index]!r})"


def describe_value(value: Any) -> str:
    """An attribute's value in words."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        more = ", ..." if len(value) > _SHOWN else ""
        return "[" + ", ".join(map(describe_value, value[:_SHOWN])) + more + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:70]


def axes_by_values(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opsets: Mapping[str, int], name: str
) -> frozenset[int]:
    """The axes of a result whose length the standard's shape inference does not know, though it knows what is read.

    Rows that are found: NonMaxSuppression, NonZero, Unique, Compress. None where the standard does not know the operator.
    """
    schema = schema_of(node, opsets)
    arrays = {one: array for one, array in zip(node.input, inputs, strict=False) if one and array is not None}
    if schema is None or any(array.dtype.kind in "OUST" for array in arrays.values()):
        return frozenset()
    types, data = {}, {}
    for one, array in arrays.items():
        types[one] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        if array.dtype.kind in "iu" and array.size <= _LENGTHS:
            data[one] = numpy_helper.from_array(array)
    versions = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=versions)
    except Exception:  # noqa: BLE001 - what the standard cannot infer is as long as it is
        return frozenset()
    if name not in found or not found[name].tensor_type.HasField("shape"):
        return frozenset()
    sizes = enumerate(found[name].tensor_type.shape.dim)
    return frozenset(axis for axis, size in sizes if not size.HasField("dim_value"))


INTEGER, REAL, TEXT, INTEGERS, REALS, TEXTS = (
    int(getattr(AttributeProto, name)) for name in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS")
)
