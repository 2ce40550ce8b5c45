"""Operators that are not ONNX's own.

What goes wrong: an operator of another domain has no definition in the standard. What it computes, and in which
precision, is known only to the library that brings it; the reference cannot run it without that library, and an
engine's plug-in is another implementation.

How it shows: the reference refuses the model; an error begins at the plug-in.

How we test for it: domains of all nodes; model-local functions count as defined.

What it is confused with: fusion bugs.

How to repair: give the reference the library (`--reference 'ort?custom_ops=library.so'`).

Sources: ONNX IR specification, "Operator Sets".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.standard import DOMAINS
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, list_names, make_finding, name_places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding


def _look(sheet: Sheet) -> Iterator[Finding]:
    defined = {(function.domain, function.name) for function in sheet.model.functions.values()}
    by_domain: dict[str, list[Place]] = {}
    for place in sheet.places:
        node = place.node
        if node.domain not in DOMAINS and (node.domain, node.op_type) not in defined:
            by_domain.setdefault(node.domain, []).append(place)
    for domain, places in by_domain.items():
        ops = sorted({place.node.op_type for place in places})
        known = " (ONNX Runtime brings them; other engines may not)" if domain == "com.microsoft" else ""
        yield make_finding(
            "information",
            f"{format_plural(len(places), 'node')} of domain {domain}{known}: {list_names(ops)}, e.g. {name_places(places)}",
            because="the domain is not one of the standard's, and the file defines no function of that name",
            places=places,
            details={"domain": domain, "operators": ops},
        )


_CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "my.own" : 1]> g (float[4] x) => (float[4] y) {
  y = my.own.Twist(x)
}"""

RULE = Rule(
    code="EXP105",
    title="Operators that are not ONNX's own",
    look=_look,
    holds=(RuleExample(model=_CUSTOM, role="information", node="Twist#0"),),
    holds_not=(RuleExample(model=_CUSTOM.replace("my.own.Twist", "Neg")),),
)
