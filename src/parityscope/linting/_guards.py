"""Small constants that keep a divisor, a logarithm or a root away from zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.linting._walk import computing_readers, kept_in_fp32, node_behind, number_of
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Place, Sheet

_GUARDING = with_trait("guards")
_LARGEST_EPSILON = 1e-2  # chosen: what is larger changes the function visibly and guards nothing
# Operators whose output is exactly zero on ordinary data; Softmax underflows to it in 16 bits.
_ZEROS = with_trait("gives zeros")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGuard:
    """A constant (`name`, `value` > 0) that `place` adds or bounds by, `before` the operator that must not meet zero.

    `source` is the operator that makes the guarded value and `meets_zero` whether that surely gives zeros; `kept` that
    the model keeps the node in FP32 itself.
    """

    place: Place
    name: str
    value: float
    before: str
    source: str
    meets_zero: bool
    kept: bool


def find_guards(sheet: Sheet) -> Iterator[EpsilonGuard]:
    """Every guard in the file."""
    for place in sheet.places:
        node = place.node
        if node.op_type not in _GUARDING or node.domain or len(node.inputs) < 2:
            continue
        for position, value in enumerate(node.inputs[:2]):
            epsilon = number_of(sheet, value)
            if epsilon is None or not 0 < epsilon < _LARGEST_EPSILON or (node.op_type == "Clip" and position != 1):
                continue
            before = _operator_guarded(sheet, node)
            if before:
                source = node_behind(node.inputs[1 - position])
                yield EpsilonGuard(
                    place=place,
                    name=str(value.name) if value is not None else "",
                    value=epsilon,
                    before=before,
                    source=source.op_type if source is not None else "an input",
                    meets_zero=source is not None and _gives_zeros(sheet, source),
                    kept=kept_in_fp32(sheet, place, position),
                )


def _operator_guarded(sheet: Sheet, guarding: ir.Node) -> str:
    """The operator behind a node that zero would break; "" when there is none."""
    for node, position in (each for output in guarding.outputs[:1] for each in computing_readers(output)):
        if node.op_type in {"Log", "Reciprocal"} or (node.op_type == "Div" and position == 1):
            return node.op_type
        power = number_of(sheet, input_at(node, 1)) if node.op_type == "Pow" and position == 0 else None
        if power is not None and power < 0:
            return "Pow"
        root = node.op_type == "Sqrt" or (power is not None and power < 1)
        if root and (further := _operator_guarded(sheet, node)):
            return f"{node.op_type} and {further}"
    return ""


def _gives_zeros(sheet: Sheet, node: ir.Node) -> bool:
    if node.op_type == "Clip":
        return number_of(sheet, input_at(node, 1)) == 0.0
    if node.op_type == "Max":
        return any(number_of(sheet, value) == 0.0 for value in node.inputs)
    if node.op_type == "Cast":  # a boolean as 0 or 1; integers may be sizes, which are never 0
        source = node.inputs[0]
        return source is not None and source.dtype is not None and source.dtype.name == "BOOL"
    return node.op_type in _ZEROS
