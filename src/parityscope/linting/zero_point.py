"""Quantization that is not symmetric, or not int8.

What goes wrong: nothing by itself. TensorRT takes only symmetric int8 (a zero point of 0 for weights and activations);
ONNX Runtime, OpenVINO and others take uint8 and zero points. A converter that drops the zero point shifts the tensor.

How it shows: the parser refuses the model, or a quantized layer is off by a constant.

How we test for it: the types and values of constant zero points.

What it is confused with: bad calibration.

How to repair: quantize for the runtime that is used.

Sources: NVIDIA TensorRT, "Working with Quantized Types" (zero points must be zero); ONNX operator QuantizeLinear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, make_finding, name_places
from parityscope.operators import STANDARD, of_kind, with_trait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding

_ZERO_POINTS = {
    name: STANDARD[name].positions("zero point") for name in of_kind("quantization") | with_trait("quantized")
}
_EIGHT_BITS = frozenset({"int8", "uint8"})


def _look(sheet: Sheet) -> Iterator[Finding]:
    shifted: list[Place] = []
    unsigned: list[Place] = []
    for place in sheet.places:
        for position in _ZERO_POINTS.get(place.node.op_type, ()):
            value = place.node.inputs[position] if position < len(place.node.inputs) else None
            constant = sheet.constant(value)
            if constant is None or constant.dtype not in _EIGHT_BITS:
                continue
            if constant.numbers.lowest or constant.numbers.highest:
                shifted.append(place)
            if constant.dtype == "uint8":
                unsigned.append(place)
    if shifted:
        yield _show_finding(shifted, "have a zero point that is not 0")
    if unsigned:
        yield _show_finding(unsigned, "are uint8")


def _show_finding(places: list[Place], what: str) -> Finding:
    once = list(dict.fromkeys(places))
    return make_finding(
        "information",
        f"{format_plural(len(once), 'quantized node')} {what}: {name_places(once)}. TensorRT takes symmetric int8 "
        "only; ONNX Runtime and "
        "OpenVINO take it as it is",
        because="constant zero points were read",
        places=once,
    )


_DQ = """<ir_version: 8, opset_import: ["" : 17]> g (int8[4] x) => (float[4] y) { y = DequantizeLinear(x, s, z) }"""
_S = {"s": np.array(0.1, np.float32)}

RULE = Rule(
    code="QNT102",
    title="Quantization that is not symmetric int8",
    look=_look,
    holds=(
        RuleExample(
            model=_DQ, constants={**_S, "z": np.array(3, np.int8)}, role="information", node="DequantizeLinear#0"
        ),
        RuleExample(model=_DQ.replace("int8[", "uint8["), constants={**_S, "z": np.array(0, np.uint8)}),
    ),
    holds_not=(RuleExample(model=_DQ, constants={**_S, "z": np.array(0, np.int8)}),),
)
