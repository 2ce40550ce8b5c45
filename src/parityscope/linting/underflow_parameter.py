"""Parameters become subnormal or vanish in the number format.

What goes wrong: weights below 6.1e-5 are subnormal in FP16 and keep fewer digits; below 3e-8 they become zero. (ModelOpt
and ONNX Runtime's converter replace them by 6e-8 instead, ModelOpt even the negative ones: the loss is the same.)

When it matters: almost every trained weight has a few such elements, and their loss is nothing beside the rounding of
the others. So we tell it only where the relative change of the whole tensor by underflow alone, in L2, is above the
unit roundoff of the format (2^-11 in FP16), which is what rounding costs anyway; for a running variance, where
1 / sqrt(variance + epsilon) of a channel changes by more than that. Only parameters that multiply or divide are judged:
what is added disappears beside what it is added to (small constants that guard a division are RNG103).

How it shows: a layer whose whole weight is small (a learned scale, a low-rank factor, a product of quantization scales)
gives too small or zero output.

How we test for it: every constant is rounded to the format, bit for bit, where it is below the smallest normal number.

What it is confused with: dead channels, whose weights vanish without any effect.

How to repair: multiply the parameter by a power of two and divide what follows by it, or keep the node in FP32.

Sources: IEEE 754-2019, section 7.5 (underflow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.arithmetic.standard import DEFAULT_EPSILON
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import make_finding, offer_by_hand, offer_proof
from parityscope.linting._walk import HOST, attribute_value, computing_readers, kept_in_fp32
from parityscope.operators import does_multiply, role_of
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.linting.records import FileConstant, Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    for constant in sheet.constants:
        losing = [each for each in sheet.computing if _share_of_underflow(constant, each) > each.unit_roundoff]
        reading = [(sheet.place(node), at) for node, at in computing_readers(constant.value)] if losing else []
        for number_format in losing:
            held = [
                (place, at) for place, at in reading if _underflow_matters(sheet, constant, place, at, number_format)
            ]
            if held:
                yield _show_finding(sheet, constant, number_format, held)


def _share_of_underflow(constant: FileConstant, number_format: Format) -> float:
    loss = constant.numbers.losses.get(number_format.name)
    return loss.underflow if loss else 0.0


def _underflow_matters(
    sheet: Sheet, constant: FileConstant, place: Place, position: int, number_format: Format
) -> bool:
    node = place.node
    if not does_multiply(node.op_type, position) or (node.op_type, position) in HOST:
        return False
    if kept_in_fp32(sheet, place, position):
        return False
    if node.op_type == "BatchNormalization" and position == 4:
        return _variance_matters(constant, node, number_format)
    return True


def _variance_matters(constant: FileConstant, node: ir.Node, number_format: Format) -> bool:
    if constant.few is None:
        return True
    epsilon = attribute_value(node, "epsilon", None)
    guard = DEFAULT_EPSILON if epsilon is None else epsilon
    exact = constant.few.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((exact + guard) / (round_to(exact, number_format) + guard))
    return bool((np.abs(ratio[np.isfinite(ratio)] - 1.0) > number_format.unit_roundoff).any())


def _show_finding(
    sheet: Sheet, constant: FileConstant, number_format: Format, held: list[tuple[Place, int]]
) -> Finding:
    first, position = held[0]
    loss = constant.numbers.losses[number_format.name]
    largest = format_number(abs(float(constant.numbers.worst)))
    return make_finding(
        "contributing",
        f"{first.node.op_type} {first.name} reads {role_of(first.node.op_type, position)} {constant.name!r} (largest "
        f"{largest}): in {number_format.title} {loss.vanished:,} of {constant.size:,} elements become zero and "
        f"{loss.subnormal:,} subnormal, which changes the tensor by {100 * loss.underflow:.3g} %",
        because=f"rounding costs {100 * number_format.unit_roundoff:.3g} % at most where a number is normal; underflow "
        f"alone costs {100 * loss.underflow:.3g} % of the L2 norm here",
        places=list(dict.fromkeys(place for place, _ in held)),
        details={
            "parameter": constant.name,
            "inside": constant.inside,
            "format": number_format.name,
            "elements": constant.size,
            "vanished": loss.vanished,
            "subnormal": loss.subnormal,
            "relative_change": loss.underflow,
        },
        repairs=(
            offer_by_hand(
                "scale_into_range",
                f"multiply {constant.name} by a power of two and divide the output of {first.name} by it, or keep "
                f"{first.name} in FP32",
            ),
            offer_proof(sheet, "measure", "see how much of the output it costs, on real samples", number_format),
        ),
    )


_MATMUL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = MatMul(x, w) }"""
_ADD = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] x) => (float[1,4] y) { y = Add(x, w) }"""
_BN = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
  y = BatchNormalization(x, scale, bias, mean, variance)
}"""
_ROW = {name: np.ones(2, np.float32) for name in ("scale", "bias", "mean")}
_TINY = np.full((4, 4), 1.3e-7, np.float32)  # between the subnormals 1.192e-7 and 1.788e-7: 8 % are lost
_MIXED = np.where(np.eye(4) > 0, 1.0, 1e-9).astype(np.float32)

RULE = Rule(
    code="RNG102",
    title="Parameters lose digits or vanish in the number format",
    look=_look,
    holds=(
        RuleExample(model=_MATMUL, constants={"w": _TINY}, role="contributing", node="MatMul#0"),
        RuleExample(model=_MATMUL, constants={"w": np.full((4, 4), 1e-9, np.float32)}, role="contributing"),
    ),
    holds_not=(
        RuleExample(model=_MATMUL, constants={"w": _MIXED}),
        RuleExample(model=_MATMUL, constants={"w": _TINY}, formats=("bf16",)),
        RuleExample(model=_ADD, constants={"w": np.full((4,), 1e-9, np.float32)}),
        # A variance far below epsilon: 1 / sqrt(variance + 1e-5) stays as it is.
        RuleExample(model=_BN, constants={**_ROW, "variance": np.full(2, 1e-9, np.float32)}),
    ),
)
