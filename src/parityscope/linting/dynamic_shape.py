"""Inputs of dynamic shape.

What goes wrong: an engine is built for a range of shapes and may choose other kernels for each; errors that appear only
for one size, or only for a batch above one, are missed by a test of one shape. What does not know its shapes needs
them to be given (`--shapes`) where inputs are generated.

How it shows: right for one size, wrong for another; identical rows of a batch differ.

How we test for it: the declared dimensions of the inputs.

What it is confused with: data that is harder to compute.

How to repair: give samples of every size that is used, the smallest and the largest among them.

Sources: ONNX IR specification, "Static tensor shapes".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import list_names, make_finding
from parityscope.linting._walk import dims_of, format_dimensions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    graph = sheet.model.graph
    dynamic = {}
    for value in graph.inputs:
        dims = dims_of(value)
        if value.name not in graph.initializers and (dims is None or any(not isinstance(dim, int) for dim in dims)):
            dynamic[str(value.name)] = format_dimensions(dims)
    if dynamic:
        yield make_finding(
            "information",
            f"dynamic inputs: {list_names(f'{name} [{shape}]' for name, shape in dynamic.items())}. Test every size in use",
            because="these dimensions have no number in the file",
            details={"shapes": dynamic},
        )


_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }"""

RULE = Rule(
    code="SHP101",
    title="Inputs of dynamic shape",
    look=_look,
    holds=(RuleExample(model=_MODEL, role="information"),),
    holds_not=(RuleExample(model=_MODEL.replace("N,", "2,")),),
)
