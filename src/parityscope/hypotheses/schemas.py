"""What ONNX's standard says of an operator, as far as hypotheses are made of it."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, helper

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "attribute_value",
    "changed_node",
    "default_of",
    "describe_value",
    "input_label",
    "quoted_words",
    "schema_of",
    "versions_of",
]

_ROLE = re.compile(
    r"(?i)bias|weight|scale|zero.point|mean|variance|epsilon|mask|initial\w* (?:hidden|cell)|lengths?|indices"
)
_QUOTED = re.compile(r"[\"'`]+([A-Za-z_]\w+)[\"'`]+")
_SHAPED = re.compile(r"\b[A-Z][A-Z_]+\b|\b(?:[A-Z][a-z]+)+\b|\b[a-z]+_[a-z_]+\b")
_MOST_WORDS = 60
_SHOWN = 8  # entries of a list


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
    return tuple(dict.fromkeys([*_QUOTED.findall(text), *_SHAPED.findall(text)]))[:_MOST_WORDS]


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


INTEGER, REAL, TEXT, INTEGERS, REALS, TEXTS = (
    int(getattr(AttributeProto, name)) for name in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS")
)
