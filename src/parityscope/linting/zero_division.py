"""A division by a constant zero, or by a constant that becomes zero in the number format.

What goes wrong: the divisor is a constant with zeros in it (infinity or NaN in floats, a crash or garbage in integers),
or one so small that the format rounds it to zero (3e-8 and less in FP16). A converter that puts the smallest
subnormal there instead still divides by another number.

How it shows: infinity or NaN from this Div on, on every input.

How we test for it: constant divisors of Div and Mod are read.

What it is confused with: an epsilon that vanishes (RNG103).

How to repair: multiply by the reciprocal, if that fits, or keep the node in FP32; correct the export where the zero is
in the file.

Sources: IEEE 754-2019, section 7.3 (division by zero); ONNX operators Div, Mod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import make_finding, offer_by_hand
from parityscope.linting._walk import kept_in_fp32
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import FileConstant, Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    for place in sheet.places:
        if place.node.op_type not in {"Div", "Mod"} or place.node.domain or len(place.node.inputs) < 2:
            continue
        constant = sheet.constant(place.node.inputs[1])
        if constant is None or constant.few is None or constant.few.dtype.kind in "bSUO":
            continue
        yield from _judge_divisors(sheet, place, constant, constant.few.reshape(-1))


def _judge_divisors(sheet: Sheet, place: Place, constant: FileConstant, divisors: np.ndarray) -> Iterator[Finding]:
    zeros = int((divisors == 0).sum())
    if zeros:
        claim = f"{place.node.op_type} {place.name} divides by {constant.name!r}, which holds {zeros:,} zeros"
        yield _show_finding(place, constant, claim.replace("1 zeros", "a zero") if zeros == 1 else claim)
        return
    if constant.dtype not in {"float32", "float64"} or kept_in_fp32(sheet, place, 1):
        return
    exact = divisors.astype(np.float64)
    for each in sheet.computing:
        gone = exact[round_to(exact, each) == 0]
        if gone.size:
            fate = f"{constant.name!r} = {format_number(float(gone[0]))}, which becomes 0 in {each.title}"
            claim = f"{place.node.op_type} {place.name} divides by {fate}"
            yield _show_finding(place, constant, claim)


def _show_finding(place: Place, constant: FileConstant, claim: str) -> Finding:
    return make_finding(
        "cause",
        claim,
        because=f"the elements of {constant.name} are in the file",
        places=[place],
        details={"parameter": constant.name, "elements": constant.size},
        repairs=(
            offer_by_hand("reciprocal", f"multiply by the reciprocal of {constant.name}, or keep {place.name} in FP32"),
        ),
    )


_DIV = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Div(x, w) }"""
_INTEGERS = """<ir_version: 8, opset_import: ["" : 17]> g (int64[4] x) => (int64[4] y) { y = Div(x, w) }"""

RULE = Rule(
    code="RNG107",
    title="A division by a constant that is zero",
    look=_look,
    holds=(
        RuleExample(model=_DIV, constants={"w": np.array([1, 0, 2, 3], np.float32)}, role="cause", node="Div#0"),
        RuleExample(model=_DIV, constants={"w": np.array(1e-8, np.float32)}, role="cause"),
        RuleExample(model=_INTEGERS, constants={"w": np.array(0, np.int64)}, role="cause"),
    ),
    holds_not=(
        RuleExample(model=_DIV, constants={"w": np.array(1e-8, np.float32)}, formats=("bf16",)),
        # 6e-8 is FP16's smallest number.
        RuleExample(model=_DIV, constants={"w": np.array(6e-8, np.float32)}),
        RuleExample(model=_INTEGERS, constants={"w": np.array(2, np.int64)}),
    ),
)
