"""A quantization scale that cannot be one.

What goes wrong: the scale of a QuantizeLinear, DequantizeLinear or QLinear operator is zero, negative, NaN or infinite.
Quantizing divides by it; dequantizing with zero gives zeros whatever the integer is. Calibration on data that never
reaches a layer, or an FP16 conversion of small scales, makes such scales.

How it shows: NaN, saturated or constant outputs of a quantized layer.

How we test for it: constant scales are read. A zero that only dequantizes contributes (a channel may really be zero);
everything else is a cause.

What it is confused with: bad calibration.

How to repair: calibrate again; give channels without values the scale 1.

Sources: ONNX operators QuantizeLinear, DequantizeLinear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import make_finding, offer_by_hand
from parityscope.operators import STANDARD, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import FileConstant, Place, Sheet
    from parityscope.records import Finding, Role

_SCALES = {name: STANDARD[name].positions(" scale") for name in of_kind("quantization") | with_trait("quantized")}


def _look(sheet: Sheet) -> Iterator[Finding]:
    for place in sheet.places:
        for position in _SCALES.get(place.node.op_type, ()):
            value = place.node.inputs[position] if position < len(place.node.inputs) else None
            constant = sheet.constant(value)
            if constant is not None and constant.few is not None:
                yield from _judge_scales(place, constant, position)


def _judge_scales(place: Place, constant: FileConstant, position: int) -> Iterator[Finding]:
    scales = constant.few.astype(np.float64) if constant.few is not None else np.zeros(0)
    wrong = int((~(scales > 0) | ~np.isfinite(scales)).sum())
    if not wrong:
        return
    zeros = int((scales == 0).sum())
    divides = place.node.op_type == "QuantizeLinear" or (place.node.op_type.startswith("QLinear") and position == 6)
    role: Role = "contributing" if zeros == wrong and not divides else "cause"
    effect = (
        "its channels become zero whatever they hold" if role == "contributing" else "quantizing with it is undefined"
    )
    kinds = "zero" if zeros == wrong else "zero, negative or not finite"
    yield make_finding(
        role,
        f"{place.node.op_type} {place.name}: {wrong:,} of {scales.size:,} scales in {constant.name!r} are {kinds}: {effect}",
        because=f"{constant.name} was read",
        places=[place],
        details={"parameter": constant.name, "wrong": wrong, "zeros": zeros},
        repairs=(offer_by_hand("calibrate_again", "calibrate again, and give channels without values the scale 1"),),
    )


_Q = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (uint8[4] y) { y = QuantizeLinear(x, scale) }"""
_DQ = """<ir_version: 8, opset_import: ["" : 17]> g (int8[4,2] x) => (float[4,2] y) {
  y = DequantizeLinear <axis = 1> (x, scale)
}"""

RULE = Rule(
    code="QNT101",
    title="A quantization scale that cannot be one",
    look=_look,
    holds=(
        RuleExample(model=_Q, constants={"scale": np.array(0, np.float32)}, role="cause", node="QuantizeLinear#0"),
        RuleExample(model=_Q, constants={"scale": np.array(np.nan, np.float32)}, role="cause"),
        RuleExample(model=_DQ, constants={"scale": np.array([0.1, 0], np.float32)}, role="contributing"),
        RuleExample(model=_DQ, constants={"scale": np.array([0.1, -0.1], np.float32)}, role="cause"),
    ),
    holds_not=(RuleExample(model=_DQ, constants={"scale": np.array([0.1, 1e-30], np.float32)}),),
)
