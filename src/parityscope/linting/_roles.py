"""What a constant is to the node that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import input_at
from parityscope.operators import with_trait

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.linting.records import Place, Sheet

__all__ = ["CHOOSE_ELEMENTS", "kept_in_fp32", "stands_for_a_bound"]

# Operators whose constants bound or choose: beyond range they bound nothing that the format can hold.
_BOUNDS = frozenset({("Clip", 1), ("Clip", 2)})
_CHOOSE = frozenset({"Max", "Min"})
# Operators that put elements of a constant beside or in the place of others, and compute nothing.
CHOOSE_ELEMENTS = with_trait("chooses elements")


def stands_for_a_bound(node: ir.Node, position: int) -> bool:
    """Whether the constant at `position` bounds the others (Clip, Max, Min)."""
    return (node.op_type, position) in _BOUNDS or node.op_type in _CHOOSE


def kept_in_fp32(sheet: Sheet, place: Place, position: int) -> bool:
    """Whether a model that computes in 16 bits where it wants to declares this input as wider itself."""
    value = input_at(place.node, position)
    return (
        bool(sheet.typed) and value is not None and value.dtype is not None and value.dtype.name in {"FLOAT", "DOUBLE"}
    )
