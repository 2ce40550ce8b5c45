"""Control flow whose types do not agree.

What goes wrong: the branches of an If give outputs of different types, or a Loop carries a value that changes its type
from one step to the next. Converters to 16 bits leave this behind when they convert one body and not the other.
Runtimes refuse such a model, or read one type as the other.

How it shows: a type error when the model is loaded; in runtimes without a check, garbage from one branch.

How we test for it: the element types are inferred through all bodies and compared.

What it is confused with: errors of the engine.

How to repair: put a Cast before the outputs of the body that differs.

Sources: ONNX operators If ("the output types of both branches must be compatible"), Loop; NVIDIA Model-Optimizer,
history of AutoCast (inconsistent types in If, Loop and Scan).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import type_of
from parityscope.linting._telling import make_finding, offer_by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    for place in sheet.places:
        if place.node.op_type == "If":
            yield from _findings_of_if(place)
        elif place.node.op_type == "Loop" and "body" in place.node.attributes:
            yield from _findings_of_loop(place)


def _findings_of_if(place: Place) -> Iterator[Finding]:
    attributes = place.node.attributes
    if not {"then_branch", "else_branch"} <= set(attributes):
        return
    then, other = (attributes[name].as_graph().outputs for name in ("then_branch", "else_branch"))
    for position, (one, two) in enumerate(zip(then, other, strict=False)):
        types = type_of(one), type_of(two)
        if "" not in types and types[0] != types[1]:
            yield _show_finding(place, f"output {position} is {types[0]} in one branch and {types[1]} in the other")


def _findings_of_loop(place: Place) -> Iterator[Finding]:
    body = place.node.attributes["body"].as_graph()
    carried = len(body.inputs) - 2
    for position in range(min(carried, len(body.outputs) - 1)):
        types = type_of(body.inputs[2 + position]), type_of(body.outputs[1 + position])
        if "" not in types and types[0] != types[1]:
            yield _show_finding(
                place, f"the carried value {position} goes in as {types[0]} and comes out as {types[1]}"
            )


def _show_finding(place: Place, what: str) -> Finding:
    return make_finding(
        "cause",
        f"{place.node.op_type} {place.name}: {what}",
        because="both types are declared, or follow from the operators",
        places=[place],
        repairs=(
            offer_by_hand("cast_in_body", f"put a Cast before that output in the body of {place.name} that differs"),
        ),
    )


def _model_with_branches(other: str) -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, bool c) => (float[4] y) {{
      y = If (c) <then_branch = t () => (float[4] a) {{ a = Neg(x) }},
        else_branch = e () => ({other}[4] b) {{ b = Cast <to = {1 if other == "float" else 10}> (x) }}>
    }}"""


RULE = Rule(
    code="CST106",
    title="Control flow whose types do not agree",
    look=_look,
    holds=(RuleExample(model=_model_with_branches("float16"), role="cause", node="If#0"),),
    holds_not=(RuleExample(model=_model_with_branches("float")),),
)
