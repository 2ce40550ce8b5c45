"""Integer division the other way, or integers cut to 32 bits.

Division of integers rounds toward zero in ONNX and C, and toward minus infinity in Python; Mod has the sign of the
divisor or of the dividend; a Cast of floats to integers truncates, or rounds to nearest. Indices of 64 bits become
32 bits by dropping the upper half, or by saturation.

Sources: ONNX operators Div, Mod, Cast; TensorRT 8's handling of INT64 (clamped to INT32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import array_of, behind, constant, insert, put, substitute

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_INT32, _INT64 = 6, 7  # TensorProto.DataType
_CAST_TO_INTEGER = frozenset({2, 3, 4, 5, 6, 7, 12, 13})


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return not node.domain


def _kinds(node: ir.Node, context: Context) -> list[str]:
    return ["" if value is None else context.value(value).dtype.name for value in node.inputs]


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    kinds = _kinds(node, context)
    if node.op_type == "Div" and kinds[0] in _INTEGERS and kinds[0].startswith("int"):
        yield Variant(words="integers are divided toward minus infinity", rewrite=_floor_division)
    if node.op_type == "Mod" and kinds[0].startswith("int"):
        yield Variant(words="the remainder has the other sign", rewrite=_other_remainder)
    if node.op_type == "Cast" and node.attributes["to"].as_int() in _CAST_TO_INTEGER and kinds[0].startswith("float"):
        for op_type, words in (("Round", "to nearest"), ("Floor", "down"), ("Ceil", "up")):
            yield Variant(words=f"floats become integers rounded {words}", rewrite=_rounded(op_type))
    if "int64" in kinds and _beyond(node, context):
        yield Variant(words="64-bit integers are cut to 32 bits", rewrite=_narrow(saturate=False))
        yield Variant(words="64-bit integers are saturated to 32 bits", rewrite=_narrow(saturate=True))
    if _result(node, context):
        yield Variant(words="the result is cut to 32 bits", rewrite=_cut_result)


def _beyond(node: ir.Node, context: Context) -> bool:
    """Whether an integer input does not fit in 32 bits."""
    limit = np.iinfo(np.int32)
    arrays = [context.value(value) for value in node.inputs if value is not None]
    return any(
        array.dtype == np.int64 and array.size > 0 and (int(array.max()) > limit.max or int(array.min()) < limit.min)
        for array in arrays
    )


def _result(node: ir.Node, context: Context) -> bool:
    array = context.value(node.outputs[0])
    limit = np.iinfo(np.int32)
    return bool(array.dtype == np.int64 and array.size and (array.max() > limit.max or array.min() < limit.min))


def _floor_division(model: ir.Model, node: ir.Node, _: float) -> None:
    """Toward zero, less one where the signs differ and something remains."""
    numerator, denominator = node.inputs[0], node.inputs[1]
    if numerator is None:
        return
    # Mod with fmod = 0 has the sign of the divisor, so numerator - mod is the next multiple below.
    rest = insert(node, "Mod", [numerator, denominator])
    lower = insert(node, "Sub", [numerator, rest])
    substitute(model, node, insert(node, "Div", [lower, denominator]))


def _other_remainder(_: ir.Model, node: ir.Node, __: float) -> None:
    put(node, "fmod", 1 - integer(node, "fmod", 0))


def _rounded(op_type: str) -> Rewrite:
    def rewrite(_: ir.Model, node: ir.Node, __: float) -> None:
        node.replace_input_with(0, insert(node, op_type, [node.inputs[0]]))

    return rewrite


def _narrow(*, saturate: bool) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        for index, value in enumerate(list(node.inputs)):
            if value is None or not _is_int64(node, index):
                continue
            if saturate:
                limit = np.iinfo(np.int32)
                low, high = (
                    constant(model, np.array(bound, np.int64), f"{value.name}::bound")
                    for bound in (limit.min, limit.max)
                )
                narrow = insert(node, "Min", [insert(node, "Max", [value, low]), high])
            else:
                narrow = insert(node, "Cast", [insert(node, "Cast", [value], {"to": _INT32})], {"to": _INT64})
            node.replace_input_with(index, narrow)

    return rewrite


def _is_int64(node: ir.Node, index: int) -> bool:
    array = array_of(node, index)
    value = node.inputs[index]
    return array.dtype == np.int64 if array is not None else value is not None and value.dtype == _INT64


def _cut_result(model: ir.Model, node: ir.Node, _: float) -> None:
    narrow = behind(model, node, "Cast", (), {"to": _INT32})
    producer = narrow.producer()
    if producer is not None:
        behind(model, producer, "Cast", (), {"to": _INT64})


HYPOTHESIS = Hypothesis(
    name="integer_arithmetic",
    title="Integer division or width",
    family="semantic",
    applies=_applies,
    variants=_variants,
)
