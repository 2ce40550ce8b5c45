"""Ways through a graph that rules follow: past nodes that only move numbers, from a constant to what computes with it.

What a constant is to the node that reads it.

Declared shapes, and whether two inputs could be taken for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.case.graph import input_at
from parityscope.operators import MOVING, STANDARD, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.case.conformance import Dims
    from parityscope.linting.records import Place, Sheet


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


# Inputs that engines read on the host, at build time or in FP32 whatever the format: (operator, position).
HOST = frozenset(
    {
        *((one.name, position) for one in STANDARD.values() for position in one.steers),
        *((name, position) for name in of_kind("comparison") for position in (0, 1)),
    }
)


def computing_readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes (with the input's position) that compute with `value`, past those that only move its elements."""
    waiting, seen = [value], {id(value)}
    while waiting:
        for node, position in waiting.pop(0).uses():
            if node.op_type not in MOVING or position != 0 or node.domain:
                yield node, position
                continue
            fresh = [output for output in node.outputs if id(output) not in seen]
            seen.update(id(output) for output in fresh)
            waiting.extend(fresh)


def nodes_ahead(node: ir.Node) -> list[ir.Node]:
    """The nodes that compute with the first output of `node`, each once."""
    return list(dict.fromkeys(each for output in node.outputs[:1] for each, _ in computing_readers(output)))


def node_behind(value: ir.Value | None) -> ir.Node | None:
    """The node that computes `value`, past those that only move elements; None for an input or a constant."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in MOVING and not node.domain and node.inputs:
        if node.op_type == "Cast" and not _float_to_float(node):
            return node
        source = node.inputs[0]
        node = None if source is None else source.producer()
    return node


def number_of(sheet: Sheet, value: ir.Value | None) -> float | None:
    """The one number that a constant holds, also behind nodes that move it; None for everything else."""
    while value is not None:
        constant = sheet.constant(value)
        if constant is not None:
            return constant.scalar
        node = value.producer()
        if node is None or node.op_type not in MOVING or not node.inputs:
            return None
        value = node.inputs[0]
    return None


def is_same_value(one: ir.Value | None, other: ir.Value | None) -> bool:
    """Whether two inputs are the same tensor, also behind Casts and moves."""
    return one is not None and _origin_of(one) is _origin_of(other)


def attribute_value(node: ir.Node, name: str, default: Any) -> Any:  # a number, text or list: as the standard has it
    """What an attribute holds, or `default`; a function's own parameter is not known here."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.value


def _origin_of(value: ir.Value | None) -> ir.Value | None:
    while value is not None:
        node = value.producer()
        if node is None or node.op_type not in {"Cast", "Identity"}:
            return value
        value = input_at(node, 0)
    return None


def _float_to_float(node: ir.Node) -> bool:
    source, target = node.inputs[0], node.outputs[0]
    known = source is not None and source.dtype is not None and target.dtype is not None
    return known and source.dtype.is_floating_point() and target.dtype.is_floating_point()  # type: ignore[union-attr]
