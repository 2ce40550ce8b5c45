"""Inputs, initializers or nodes that nothing needs, and outputs that need no input.

What goes wrong: nothing in the numbers. An input that nothing reads still has to be bound, in the right place; some
engines drop it, and then positions shift. An output that depends on no input is the same for every sample: often the
trace of an export that turned a computation into a constant.

How it shows: programs that bind by position fail; an output never changes.

How we test for it: uses of every value, through all bodies.

What it is confused with: nothing.

How to repair: let an optimizer remove what is unused; look at the export of constant outputs.

Sources: ONNX IR specification, "Graphs".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.graph import closure_of
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, list_names, make_finding, name_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    graph = sheet.model.graph
    yield from _finding_of_unused(
        "input", [value for value in graph.inputs if value.name not in graph.initializers and _is_unused(value)]
    )
    yield from _finding_of_unused("initializer", [value for value in graph.initializers.values() if _is_unused(value)])
    needed, _ = closure_of(graph.outputs)
    alive = {id(node) for node in needed}
    dead = [place for place in sheet.places if not place.inside and place.index >= 0 and id(place.node) not in alive]
    if dead:
        yield make_finding(
            "information",
            f"{format_plural(len(dead), 'node')} that no output needs: {name_places(dead)}",
            because="outputs were followed back through the graph",
            places=dead,
        )
    fixed = [str(value.name) for value in graph.outputs if not _depends_on_input(value, graph)]
    if fixed:
        yield make_finding(
            "information",
            f"{format_plural(len(fixed), 'output')} the same for every sample: {list_names(fixed)}",
            because="no input is reached from there",
            details={"outputs": fixed},
        )


def _is_unused(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output()


def _finding_of_unused(kind: str, values: list[ir.Value]) -> Iterator[Finding]:
    if values:
        names = [str(value.name) for value in values]
        yield make_finding(
            "information",
            f"{format_plural(len(names), kind)} that nothing reads: {list_names(names)}",
            because="uses were counted through all bodies",
            details={f"{kind}s": names[:200]},
        )


def _depends_on_input(output: ir.Value, graph: ir.Graph) -> bool:
    fed = {id(value) for value in graph.inputs if value.name not in graph.initializers}
    nodes, free = closure_of([output])
    random = any(node.op_type.startswith("Random") for node in nodes)
    return random or any(id(value) in fed for value in free)


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float[4] z) => (float[4] y) { y = Neg(x) }"""
_FIXED = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y, float[4] c) {
  y = Neg(x)
  c = Neg(w)
}"""
_W = {"w": np.ones(4, np.float32)}

RULE = Rule(
    code="EXP103",
    title="Parts that nothing needs",
    look=_look,
    holds=(
        RuleExample(model=_MODEL, role="information"),
        RuleExample(model=_MODEL.replace("Neg(x)", "Add(x, z)"), constants=_W, role="information"),
        RuleExample(model=_FIXED, constants=_W, role="information"),
    ),
    holds_not=(RuleExample(model=_MODEL.replace("Neg(x)", "Add(x, z)")),),
)
