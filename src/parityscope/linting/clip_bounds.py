"""The bounds of a Clip are wrong, or do not survive the number format.

What goes wrong: a lower bound above the upper one makes every element the upper bound (and runtimes disagree about it);
a bound that is NaN is undefined; two bounds that become the same number in a format make the output constant. A bound
beyond the range of the format becomes infinity and bounds nothing, which is harmless: nothing that the format holds is
beyond it. Bounds near FP32's largest number stand for "no bound" and are not told.

How it shows: an output that is constant, or values outside the declared range.

How we test for it: constant bounds (inputs since opset 11, attributes before) are compared, as they are and rounded to
the format. A bound such as 6 is held by every format; 0.1 moves by its rounding, which is the format's usual error.

What it is confused with: a fused Clip whose bound an engine loses.

How to repair: correct the bounds in the export.

Sources: ONNX operator Clip-13 ("When 'min' is greater than 'max', the clip operator sets all the 'input' values to the
value of 'max'").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.scanning import value_in_format
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import make_finding, offer_by_hand
from parityscope.linting._walk import attribute_value, number_of
from parityscope.plain_numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding, Role

_NO_BOUND = 1e38  # exporters write FP32's largest number, 3.4e38, for an absent bound


def _look(sheet: Sheet) -> Iterator[Finding]:
    for place in sheet.places:
        if place.node.op_type != "Clip" or place.node.domain:
            continue
        low, high = _bound_of_clip(sheet, place, 1, "min"), _bound_of_clip(sheet, place, 2, "max")
        if low is None and high is None:
            continue
        yield from _judge_bounds(sheet, place, -math.inf if low is None else low, math.inf if high is None else high)


def _bound_of_clip(sheet: Sheet, place: Place, position: int, name: str) -> float | None:
    node = place.node
    if len(node.inputs) > position:
        return number_of(sheet, node.inputs[position])
    bound: float | None = attribute_value(node, name, None)
    return bound


def _judge_bounds(sheet: Sheet, place: Place, low: float, high: float) -> Iterator[Finding]:
    said = f"Clip {place.name} has bounds {format_number(low)} and {format_number(high)}"
    if math.isnan(low) or math.isnan(high):
        yield _show_finding(place, "cause", f"{said}: NaN bounds nothing, and runtimes disagree about it", low, high)
        return
    if low > high:
        claim = f"{said}: the lower one is above the upper one, so that every element becomes {format_number(high)}"
        yield _show_finding(place, "cause", claim, low, high)
        return
    for each in sheet.computing:
        low_then, high_then = value_in_format(low, each), value_in_format(high, each)
        if low < high and low_then == high_then:
            claim = f"{said}: both become {format_number(low_then)} in {each.title}, so that the output is constant"
            yield _show_finding(place, "cause", claim, low, high)
        lost = [bound for bound in (low, high) if each.largest < abs(bound) < _NO_BOUND]
        if lost:
            held = " and ".join(format_number(bound) for bound in lost)
            claim = (
                f"{said}: {held} is beyond {each.title} (largest {format_number(each.largest)}) and bounds nothing "
                "there. That is "
                "harmless: no number that the format holds is beyond it"
            )
            yield _show_finding(place, "information", claim, low, high)


def _show_finding(place: Place, role: Role, claim: str, low: float, high: float) -> Finding:
    return make_finding(
        role,
        claim,
        because="the bounds are constants of the file",
        places=[place],
        details={"min": low, "max": high},
        repairs=()
        if role == "information"
        else (offer_by_hand("correct_bounds", f"correct the bounds of {place.name}"),),
    )


_CLIP = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Clip(x, low, high) }"""
_OLD = """<ir_version: 8, opset_import: ["" : 6]> g (float[4] x) => (float[4] y) {
  y = Clip <min = 6.0, max = 0.0> (x)
}"""


def _bounds_as_arrays(low: float, high: float) -> dict[str, np.ndarray]:
    return {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}


RULE = Rule(
    code="RNG106",
    title="The bounds of a Clip do not hold",
    look=_look,
    holds=(
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(6, 0), role="cause", node="Clip#0"),
        RuleExample(model=_OLD, role="cause"),
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(math.nan, 6), role="cause"),
        # 1 and 1.0001 are one number with 11 bits of precision.
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(1, 1.0001), role="cause"),
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(0, 1e5), role="information"),
    ),
    holds_not=(
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(0, 6)),
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(-3.4e38, 3.4e38)),
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(0, 1e5), formats=("bf16",)),
        RuleExample(model=_CLIP, constants=_bounds_as_arrays(0, 1e5), role="cause"),
    ),
)
