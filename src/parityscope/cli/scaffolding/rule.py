"""Exp that nothing bounds.

What goes wrong: exp(x) is beyond FP16's largest number, 65504, for x above ln 65504 = 11.09.

How it shows: Inf, and NaN behind it.

How we test for it: Exp nodes, when FP16 is asked for.

What it is confused with: Softmax, which subtracts the largest value first and is safe.

How to repair: keep the node in FP32, or subtract the largest value before it.

Sources: IEEE 754-2019, table 3.5 (binary16).

Fill in: these six parts for what you look for, the code (a family and a number of your own), `_look` (the sheet holds
the graph, its nodes with their places, and every constant with its numbers), and the examples at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.records import Finding, OfferedRepair, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet

_CODE = "USR000"
_TITLE = "Exp that nothing bounds"


def _look(sheet: Sheet) -> Iterator[Finding]:
    if all(each.name != "f16" for each in sheet.formats):
        return
    for place in sheet.places:
        if place.node.op_type == "Exp" and not place.node.domain:
            tensor = str(place.node.outputs[0].name)
            yield Finding(
                code=_CODE,
                title=_TITLE,
                role="contributing",
                claim=f"{place.name} overflows FP16 where its input is above 11.09.",
                confidence=1.0,
                confidence_from="the range of the format",
                site=Site(tensor=tensor, node=place.name, op_type="Exp", index=place.index),
                repairs=(OfferedRepair(repair="keep_in_fp32", text=f"keep {place.name} in FP32"),),
                details={"nodes": [place.name]},
            )


_EXP = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { [grow] y = Exp(x) }"""

RULE = Rule(
    code=_CODE,
    title=_TITLE,
    look=_look,
    holds=(RuleExample(model=_EXP, role="contributing", node="grow"),),
    holds_not=(RuleExample(model=_EXP, formats=("bf16",)),),
)
