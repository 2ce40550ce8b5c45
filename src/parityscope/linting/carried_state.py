"""State that is carried from step to step.

What goes wrong: a Loop, a Scan or a recurrent layer feeds what it computed back in. In a 16-bit format the state is
rounded at every step, and the errors of all steps add up (or are damped, which only the weights decide). A comparison of
one step, or of a short sequence, says little about a long one.

How it shows: the error grows with the length of the sequence.

How we test for it: Loop and Scan with float state, LSTM, GRU and RNN are listed. Whether the error grows takes a run.

What it is confused with: an error of one layer.

How to repair: keep the state in FP32; compare on sequences as long as the real ones.

Sources: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, chapter 3 (growth of rounding errors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import type_of
from parityscope.linting._telling import format_plural, make_finding, name_places
from parityscope.linting._walk import attribute_value
from parityscope.operators import STANDARD, of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding

_RECURRENT = of_kind("recurrent")
_LOOPS = frozenset(one.name for one in STANDARD.values() if one.carries)
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def _look(sheet: Sheet) -> Iterator[Finding]:
    places = [place for place in sheet.places if _carries_state(place)]
    if places:
        yield make_finding(
            "information",
            f"{format_plural(len(places), 'node')} with float state that is fed back at every step: "
            f"{name_places(places)}. Rounding adds up "
            "over the steps; compare on sequences as long as the real ones",
            because="their state has a float type",
            places=places,
        )


def _carries_state(place: Place) -> bool:
    node = place.node
    if node.op_type in _RECURRENT:
        return True
    if node.op_type not in _LOOPS or "body" not in node.attributes:
        return False
    return any(type_of(value) in _FLOATS for value in _carried_values(node))


def _carried_values(node: ir.Node) -> list[ir.Value]:
    body = node.attributes["body"].as_graph()
    if node.op_type == "Loop":
        return list(body.inputs)[2:]
    scanned = attribute_value(node, "num_scan_inputs", 0)
    return list(body.inputs)[: len(body.inputs) - scanned]


_GRU = """<ir_version: 8, opset_import: ["" : 17]> g (float[3,1,2] x) => (float[3,1,1,2] y) {
  y, last = GRU <hidden_size = 2> (x, w, r)
}"""
_PLAIN = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Neg(x) }"""

RULE = Rule(
    code="SEQ101",
    title="State is carried from step to step",
    look=_look,
    holds=(
        RuleExample(
            model=_GRU,
            constants={"w": np.zeros((1, 6, 2), np.float32), "r": np.zeros((1, 6, 2), np.float32)},
            role="information",
            node="GRU#0",
        ),
    ),
    holds_not=(RuleExample(model=_PLAIN),),
)
