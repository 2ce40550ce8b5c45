"""A parameter is beyond the range of the number format.

What goes wrong: a weight, a bias, a running variance or another constant is larger than the largest finite value of a
format (65,504 in FP16). A plain conversion makes it infinity; converters that saturate (TensorRT, OpenVINO) make it
the largest finite value. The layer computes something else in both cases.

How it shows: the engine is wrong on every input, from this layer on; in FP32, and in BF16 with its range of FP32, it
is right.

How we test for it: every initializer, every Constant node and every tensor inside If, Loop, Scan and functions is
read once; an element counts if rounding to nearest takes it beyond the largest finite value. It is a cause for the
16-bit formats, since both treatments of overflow change the layer. FP8 engines scale their tensors, so that there
it only contributes. Not counted are constants that stand for infinity (RNG104), bounds of Clip (RNG106), what engines
read on the host (sizes, scales of Resize and of quantization, comparisons), and nodes that a model of mixed types
itself keeps in FP32 (information).

What it is confused with: an activation beyond range (RNG002), which depends on the data.

How to repair: fold a BatchNormalization in FP32 (`offer_proof` does it in a copy and measures it), scale the parameter
into range, keep the one node in FP32, or use BF16.

Sources: IEEE 754-2019, section 7.4 (overflow); NVIDIA TensorRT, warnings on the conversion of weights ("converted them
to the closest finite FP16 value").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.scanning import value_in_format
from parityscope.linting import Rule, RuleExample
from parityscope.linting._masks import is_mask
from parityscope.linting._telling import make_finding, offer_by_hand, offer_proof
from parityscope.linting._walk import CHOOSE_ELEMENTS, HOST, computing_readers, kept_in_fp32, stands_for_a_bound
from parityscope.operators import role_of
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.linting.records import FileConstant, Place, Sheet
    from parityscope.records import Finding, OfferedRepair, Role

_NO_PARAMETER = 1e30  # chosen: beyond it stand only FP32's largest number and such; a trained parameter never does


def _look(sheet: Sheet) -> Iterator[Finding]:
    for constant in sheet.constants:
        beyond = [each for each in sheet.formats if _count_beyond(constant, each)]
        reading = (
            [
                (sheet.place(node), at)
                for node, at in computing_readers(constant.value)
                if not _is_harmless(constant, node, at)
            ]
            if beyond
            else []
        )
        kept = [one for one in reading if kept_in_fp32(sheet, one[0], one[1])]
        converted = [one for one in reading if one not in kept]
        for role, formats in _formats_by_role(beyond):
            if converted:
                meant = role == "cause" and all(_stands_for_infinity(constant, place) for place, _ in converted)
                yield _show_finding(sheet, constant, formats, converted, "contributing" if meant else role)
        if kept and not converted:
            yield _show_finding(sheet, constant, beyond, kept, "information")


def _count_beyond(constant: FileConstant, number_format: Format) -> int:
    loss = constant.numbers.losses.get(number_format.name)
    return loss.beyond if loss else 0


def _is_harmless(constant: FileConstant, node: ir.Node, position: int) -> bool:
    return (node.op_type, position) in HOST or stands_for_a_bound(node, position) or is_mask(constant, node, position)


def _stands_for_infinity(constant: FileConstant, place: Place) -> bool:
    """Whether elements are chosen from the constant that no trained parameter has: infinity does as well, mostly."""
    return place.node.op_type in CHOOSE_ELEMENTS and abs(float(constant.numbers.worst)) > _NO_PARAMETER


def _formats_by_role(formats: list[Format]) -> list[tuple[Role, list[Format]]]:
    wide = [each for each in formats if each.bits > 8]
    narrow = [each for each in formats if each.bits <= 8]
    both: list[tuple[Role, list[Format]]] = [("cause", wide), ("contributing", narrow)]
    return [(role, held) for role, held in both if held]


def _show_finding(
    sheet: Sheet, constant: FileConstant, formats: list[Format], reading: list[tuple[Place, int]], role: Role
) -> Finding:
    first, position = reading[0]
    worst = float(constant.numbers.worst)
    limits = ", ".join(f"{each.title} (largest {format_number(each.largest)})" for each in formats)
    count = _count_beyond(constant, formats[0])
    what = role_of(first.node.op_type, position)
    claim = (
        f"{first.node.op_type} {first.name} reads {what} {constant.name!r}, which holds {format_number(worst)}: beyond {limits}, "
        f"{count:,} of {constant.size:,} elements. {_describe_fate(formats[0], worst, what)}"
    )
    if role == "information":
        claim += " The model itself keeps this node in FP32, so nothing is lost as long as a converter respects that."
    return make_finding(
        role,
        claim,
        because=f"{constant.name} ({constant.dtype}, {_format_shape(constant)}) was read: finite elements from "
        f"{format_number(float(constant.numbers.lowest))} to {format_number(float(constant.numbers.highest))}",
        places=list(dict.fromkeys(place for place, _ in reading)),
        details={
            "parameter": constant.name,
            "inside": constant.inside,
            "role": what,
            "value": worst,
            "elements": constant.size,
            "beyond": {each.name: _count_beyond(constant, each) for each in formats},
            "becomes": {each.name: value_in_format(worst, each) for each in formats},
            "saturated": {each.name: float(np.copysign(each.largest, worst)) for each in formats},
        },
        repairs=() if role == "information" else _offer_repairs(sheet, first, formats[0]),
    )


def _describe_fate(number_format: Format, worst: float, what: str) -> str:
    top = format_number(float(np.copysign(number_format.largest, worst)))
    plain = format_number(value_in_format(worst, number_format))
    sentence = f"It becomes {plain}, or {top} where the converter saturates"
    if what == "running variance":
        ratio = (abs(worst) / number_format.largest) ** 0.5
        return f"{sentence}: the channel's normalized values become 0, or {format_number(ratio)} times too large."
    return f"{sentence}."


def _offer_repairs(sheet: Sheet, place: Place, number_format: Format) -> tuple[OfferedRepair, ...]:
    offered = [
        offer_by_hand(
            "keep_in_fp32", f"keep {place.name} in FP32 with its parameters, or use BF16, which has FP32's range"
        )
    ]
    if place.node.op_type == "BatchNormalization":
        text = (
            f"fold {place.name} in FP32 before converting: scale / sqrt(variance + epsilon) usually fits although the "
            "variance does not; this tries it in a copy, measures it, and leaves repaired.onnx in the study"
        )
        return (offer_proof(sheet, "fold_batch_normalization", text, number_format), *offered)
    return (
        *offered,
        offer_proof(sheet, "measure", "see how much of the output it costs, on real samples", number_format),
    )


def _format_shape(constant: FileConstant) -> str:
    return "x".join(str(dim) for dim in constant.shape) or "scalar"


_BN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
  y = BatchNormalization(x, scale, bias, mean, variance)
}"""
_ROW = {name: np.ones(2, np.float32) for name in ("scale", "bias", "mean")}
_NODE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  w = Constant <value_float = 70000.0> ()
  y = Mul(x, w)
}"""
_BODY = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, bool c) => (float[4] y) {
  y = If (c) <then_branch = t () => (float[4] a) <float[1] w = {-100000.0}> { a = Div(x, w) },
    else_branch = e () => (float[4] b) { b = Neg(x) }>
}"""
_MIXED = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4] x) => (float16[4] y) {
  a = Mul(x, x)
  b = Cast <to = 1> (a)
  c = Mul(b, w)
  y = Cast <to = 10> (c)
}"""
_BOUND = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Min(x, w) }"""

RULE = Rule(
    code="RNG101",
    title="A parameter is beyond the range of the number format",
    look=_look,
    holds=(
        RuleExample(
            model=_BN,
            constants={**_ROW, "variance": np.array([1.0, 97_903_600.0], np.float32)},
            role="cause",
            node="BatchNormalization#0",
        ),
        RuleExample(model=_NODE, role="cause", node="Mul#0"),
        RuleExample(model=_BODY, role="cause"),
        # 3.39e38 is BF16's largest finite value; float32's own largest rounds beyond it.
        RuleExample(
            model=_BN,
            constants={**_ROW, "variance": np.array([1.0, np.finfo(np.float32).max], np.float32)},
            formats=("bf16",),
            role="cause",
        ),
        RuleExample(
            model=_BN,
            constants={**_ROW, "variance": np.array([1.0, 1000.0], np.float32)},
            formats=("f8e4m3",),
            role="contributing",
        ),
        RuleExample(model=_MIXED, constants={"w": np.array([70000.0], np.float32)}, role="information"),
    ),
    holds_not=(
        # 65,519 rounds to 65,504; the first number that rounds beyond is 65,520.
        RuleExample(model=_BN, constants={**_ROW, "variance": np.array([1.0, 65_519.0], np.float32)}),
        RuleExample(
            model=_BN, constants={**_ROW, "variance": np.array([1.0, 97_903_600.0], np.float32)}, formats=("bf16",)
        ),
        RuleExample(model=_BOUND, constants={"w": np.array([1e9], np.float32)}),
        RuleExample(model=_MIXED, constants={"w": np.array([70000.0], np.float32)}, role="cause"),
    ),
)
