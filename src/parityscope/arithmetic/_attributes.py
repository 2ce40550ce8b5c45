"""What a node was given: inputs that must be there, and attributes with the defaults of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "float_attribute",
    "input_at",
    "integer_attribute",
    "integers_attribute",
    "required_input",
    "string_attribute",
]


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Input `index`; None where it is left out, or where a damaged file has fewer inputs than it should."""
    return node.inputs[index] if index < len(node.inputs) else None


def required_input(node: ir.Node, index: int) -> ir.Value:
    """Input `index`, which the operator cannot do without.

    Raises:
        ValueError: it is left out.
    """
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"{node.op_type} {node.name} lacks its input {index}")
    return value


def integer_attribute(node: ir.Node, name: str, default: int) -> int:
    """The integer attribute `name`."""
    return node.attributes[name].as_int() if name in node.attributes else default


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """The float attribute `name`."""
    return node.attributes[name].as_float() if name in node.attributes else default


def integers_attribute(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """The attribute `name`, a list of integers."""
    return tuple(node.attributes[name].as_ints()) if name in node.attributes else default


def string_attribute(node: ir.Node, name: str, default: str) -> str:
    """The string attribute `name`."""
    return node.attributes[name].as_string() if name in node.attributes else default
