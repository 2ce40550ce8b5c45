"""Node names that are missing or shared.

What goes wrong: precision lists (keep these layers in FP32), plug-ins and reports name nodes. Two nodes of one name
cannot be told apart, so that a list catches both or the wrong one; a node without a name cannot be listed at all, and
each tool invents another name for it.

How it shows: "the layer that I kept in FP32 still runs in FP16".

How we test for it: the names of all nodes except Constants, main graph and bodies each for itself.

What it is confused with: an engine that does not honour precisions.

How to repair: give every node a name of its own before converting; the numbers do not change.

Sources: ONNX IR specification, "Nodes" (names are optional and meant for diagnosis); NVIDIA
TensorRT, public report on layer precisions set by the last part of a name.
"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, list_names, make_finding
from parityscope.records import OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    counts = Counter((place.inside, place.node.name or "") for place in sheet.places if place.node.name)
    shared = {name: count for (_, name), count in counts.items() if count > 1}
    if shared:
        places = [place for place in sheet.places if counts[place.inside, place.node.name or ""] > 1]
        said = list_names(f"{name!r} ({count} nodes)" for name, count in shared.items())
        yield make_finding(
            "contributing",
            (
                f"{format_plural(len(shared), 'node name')} stand for several nodes: {said}. A precision list by name "
                "catches all of them"
            ),
            because="names were counted in each graph",
            places=places,
            details={"shared": len(shared)},
            repairs=(_offer_renaming(sheet),),
        )
    unnamed = [place for place in sheet.places if not place.node.name]
    if unnamed:
        yield make_finding(
            "information",
            (
                f"{len(unnamed):,} of {format_plural(len(sheet.places), 'node')} have no name; this report calls them by "
                "operator and index"
            ),
            because="names were counted in each graph",
            places=unnamed,
            repairs=(_offer_renaming(sheet),),
        )


def _offer_renaming(sheet: Sheet) -> OfferedRepair:
    target = sheet.path.with_suffix(".named.onnx")
    script = (
        "import onnx_ir as ir, sys; m = ir.load(sys.argv[1]); "
        "[setattr(n, 'name', f'{n.op_type}_{i}') for i, n in enumerate(m.graph.all_nodes())]; ir.save(m, sys.argv[2])"
    )
    command = f"python -c {shlex.quote(script)} {shlex.quote(str(sheet.path))} {shlex.quote(str(target))}"
    return OfferedRepair(
        repair="name_nodes", text="write a copy whose nodes all have names of their own", command=command
    )


_UNNAMED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  a = Neg(x)
  y = Neg(a)
}"""
_SHARED = _UNNAMED.replace("a = ", "[twice] a = ").replace("y = ", "[twice] y = ")
_NAMED = _UNNAMED.replace("a = ", "[one] a = ").replace("y = ", "[two] y = ")

RULE = Rule(
    code="EXP102",
    title="Node names that are missing or shared",
    look=_look,
    holds=(
        RuleExample(model=_SHARED, role="contributing", node="twice"),
        RuleExample(model=_UNNAMED, role="information", node="Neg#1"),
    ),
    holds_not=(RuleExample(model=_NAMED),),
)
