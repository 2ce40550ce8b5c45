"""Pairs of Casts with nothing but moves between them, and what the types on the way hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import input_at
from parityscope.case.model import dtype_name
from parityscope.light_dataclasses import dataclass
from parityscope.operators import MOVING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Place, Sheet

# Bits of the largest run of whole numbers that a type holds, and of its exponent (0 for integers).
_PRECISION = {
    "float64": (53, 11),
    "float32": (24, 8),
    "float16": (11, 5),
    "bfloat16": (8, 8),
    "float8_e4m3fn": (4, 4),
    "float8_e5m2": (3, 5),
    **{f"int{bits}": (bits - 1, 0) for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": (bits, 0) for bits in (4, 8, 16, 32, 64)},
    "bool": (1, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CastPair:
    """Two Casts, `first` before `second`; `types` before, between and after them."""

    first: Place
    second: Place
    types: tuple[str, str, str]

    @property
    def loses(self) -> bool:
        """Whether the type between does not hold every number of the one before."""
        return not holds_every_number(self.types[1], self.types[0])

    @property
    def comes_back(self) -> bool:
        """Whether the type after is the one before, or another that holds more than the one between."""
        before, between, after = self.types
        return before == after or (after != between and holds_every_number(after, between))

    @property
    def through_float(self) -> bool:
        """Whether the type between is a float."""
        return _PRECISION[self.types[1]][1] > 0


def cast_pairs(sheet: Sheet) -> Iterator[CastPair]:
    """Every pair of Casts between known types, in the order of the second."""
    for place in sheet.places:
        node = place.node
        if node.op_type != "Cast" or node.domain or not (node.inputs and node.outputs):
            continue
        earlier = _cast_behind(node.inputs[0])
        if earlier is None:
            continue
        types = (type_of(input_at(earlier, 0)), type_of(earlier.outputs[0]), type_of(node.outputs[0]))
        if all(each in _PRECISION for each in types):
            yield CastPair(first=sheet.place(earlier), second=place, types=types)


def holds_every_number(wide: str, narrow: str) -> bool:
    """Whether type `wide` holds every number of type `narrow`, both of the types known here."""
    precision, exponent = _PRECISION[wide]
    wanted, range_wanted = _PRECISION[narrow]
    if exponent == 0 and range_wanted > 0:
        return False
    signed = not (wide.startswith("uint") or wide == "bool") or narrow.startswith("uint") or narrow == "bool"
    if exponent == 0:
        return precision >= wanted and signed
    return precision >= wanted and exponent >= range_wanted


def type_of(value: ir.Value | None) -> str:
    """The numpy name of a value's type; "" when it is unknown."""
    return "" if value is None or value.dtype is None else dtype_name(value.dtype)


def _cast_behind(value: ir.Value | None) -> ir.Node | None:
    node = None if value is None else value.producer()
    while node is not None and node.op_type in MOVING and node.op_type not in {"Cast", "CastLike"} and node.inputs:
        source = node.inputs[0]
        node = None if source is None else source.producer()
    return node if node is not None and node.op_type == "Cast" and not node.domain else None
