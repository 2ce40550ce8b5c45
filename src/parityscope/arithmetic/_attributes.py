"""What a node was given: inputs that must be there, and attributes with the defaults of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["integer", "integers", "number", "required", "text"]


def required(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"{node.op_type} {node.name} lacks its input {index}")
    return value


def integer(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def number(node: ir.Node, name: str, default: float) -> float:
    return node.attributes[name].as_float() if name in node.attributes else default


def integers(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node.attributes[name].as_ints()) if name in node.attributes else default


def text(node: ir.Node, name: str, default: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else default
