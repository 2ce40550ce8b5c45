"""Facts of the ONNX standard that several parts ask for: opsets, schemas, and constants that its operators have.

Source: the operator schemas of the `onnx` package, which are the standard's own text (docs/Operators.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx.defs
    import onnx_ir as ir

DEFAULT_EPSILON = 1e-5  # of the attribute `epsilon`, in every operator that has it
GELU_CUBIC = 0.044715  # Gelu with approximate="tanh": 0.5 x (1 + tanh(sqrt(2 / π) (x + 0.044715 x³)))
SHAPE_READERS = of_kind("shape")  # what they give does not depend on the numbers they read
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})  # whose operators the standard itself defines


def opset_of(model: ir.Model | ir.Graph) -> int:
    """The version of ONNX's own operators that a model or a graph imports; 1 where it imports none."""
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))


def schema_of(node: ir.Node, opsets: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """The schema of a node's operator at the model's opset; None for operators that ONNX does not define."""
    return schema_called(*key_of_schema(node, opsets))


def key_of_schema(node: ir.Node, opsets: Mapping[str, int]) -> tuple[str, int, str]:
    """What a node's schema is found by: its operator, the version of that, and the domain."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return node.op_type, opsets.get(domain, opsets.get("ai.onnx", 1) if not domain else 1), domain


def schema_called(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an operator; None where ONNX defines none of that name."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
