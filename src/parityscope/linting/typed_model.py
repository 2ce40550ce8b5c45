"""The file computes in 16 bits by itself.

What goes wrong: nothing by itself. A model with FP16 or BF16 tensors is not an FP32 reference: what it loses is in the
reference too, and ONNX Runtime on a CPU computes much of it in FP32, so that a comparison against it certifies
something else than the engine will do. Converting it again rounds what its author kept in FP32.

How it shows: the engine of a "half" model differs from ONNX Runtime on a CPU more than expected.

How we test for it: nodes that compute on float16 or bfloat16, in the main graph, in If, Loop and Scan, and in
functions. Files that only store weights in 16 bits and cast them up are not meant.

What it is confused with: an engine's error.

How to repair: compare against the FP32 original.

Sources: ONNX Runtime's CPU provider, which has few FP16 kernels and runs the rest in FP32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import type_of
from parityscope.linting._telling import make_finding, name_places
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    for dtype in sorted(sheet.typed):
        places = [place for place in sheet.places if _computes_in(place, dtype)]
        inside = [place for place in places if place.inside]
        body = f", {len(inside):,} of them inside of control flow or functions" if inside else ""
        yield make_finding(
            "information",
            f"{len(places):,} of {len(sheet.places):,} nodes compute in {dtype}{body}, e.g. {name_places(places)}: "
            "this file is no "
            "FP32 reference, and what it keeps in float32 is meant to stay there",
            because="element types were inferred through the whole graph",
            places=places,
            details={"type": dtype, "inside": len(inside)},
        )


def _computes_in(place: Place, dtype: str) -> bool:
    if place.node.op_type in of_kind("control flow") | {"Cast"}:
        return False
    return any(type_of(value) == dtype for value in place.node.inputs)


_HALF = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4] x) => (float16[4] y) { y = Mul(x, x) }"""
_STORED = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {
  wide = Cast <to = 1> (w)
  y = Mul(x, wide)
}"""

RULE = Rule(
    code="CST105",
    title="The file computes in 16 bits by itself",
    look=_look,
    holds=(RuleExample(model=_HALF, role="information", node="Mul#0"),),
    holds_not=(RuleExample(model=_STORED, constants={"w": np.ones(2, np.float16)}),),
)
