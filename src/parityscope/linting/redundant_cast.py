"""Casts that change nothing.

What goes wrong: nothing in the numbers. A Cast to the type that its input has, or a pair that goes to a wider type and
straight back, costs time where it is not removed, cuts fusions apart, and hides the Casts that matter.

How it shows: an engine that is slower than expected; long lists of layers named Cast.

How we test for it: the element types are inferred through the whole graph, bodies included.

What it is confused with: chains that lose precision (CST101).

How to repair: let an optimizer remove them before the conversion.

Sources: NVIDIA TensorRT 11 migration guide (leftover Casts cost 1 to 3 % on transformers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import cast_pairs, type_of
from parityscope.linting._telling import format_plural, make_finding, name_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    same = [place for place in sheet.places if _changes_nothing(place)]
    if same:
        yield _show_finding(
            same, f"{format_plural(len(same), 'Cast')} to the type that the input has", "the input's type is inferred"
        )
    back = [pair for pair in cast_pairs(sheet) if not pair.loses and pair.types[0] == pair.types[2] != pair.types[1]]
    if back:
        places = [pair.second for pair in back]
        because = "the type between holds every number of the one before and after"
        yield _show_finding(
            places, f"{format_plural(len(back), 'Cast')} back to the type before the Cast before", because
        )


def _changes_nothing(place: Place) -> bool:
    node = place.node
    if node.op_type != "Cast" or node.domain or not (node.inputs and node.outputs):
        return False
    return type_of(node.inputs[0]) == type_of(node.outputs[0]) != ""


def _show_finding(places: list[Place], claim: str, because: str) -> Finding:
    return make_finding("information", f"{claim}: {name_places(places)}", because=because, places=places)


_SAME = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Cast <to = 1> (x) }"""
_BACK = """<ir_version: 8, opset_import: ["" : 17]> g (float16[4] x) => (float16[4] y) {
  a = Cast <to = 1> (x)
  y = Cast <to = 10> (a)
}"""
_NEEDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  a = Cast <to = 10> (x)
  b = Neg(a)
  y = Cast <to = 1> (b)
}"""

RULE = Rule(
    code="CST102",
    title="Casts that change nothing",
    look=_look,
    holds=(
        RuleExample(model=_SAME, role="information", node="Cast#0"),
        RuleExample(model=_BACK, role="information", node="Cast#1"),
    ),
    holds_not=(RuleExample(model=_NEEDED),),
)
