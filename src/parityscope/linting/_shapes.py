"""Declared shapes, and whether two inputs could be taken for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.case.conformance import Dims

__all__ = ["are_exchangeable", "dims_of", "format_dimensions"]


def dims_of(value: ir.Value) -> Dims | None:
    """The declared dimensions: numbers, names, or None where the file says nothing; None when the rank is unknown."""
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def are_exchangeable(one: Dims | None, other: Dims | None) -> bool:
    """Whether a tensor of one shape may be fed to the other without an error: unknown dimensions take any size."""
    if one is None or other is None:
        return one is other
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)


def format_dimensions(dims: Dims | None) -> str:
    """Dimensions as a reader writes them: "1, 3, ?, width"."""
    if dims is None:
        return "..."
    return ", ".join("?" if dim is None else str(dim) for dim in dims)
