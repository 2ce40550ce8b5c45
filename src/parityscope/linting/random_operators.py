"""Operators that draw random numbers.

What goes wrong: RandomNormal, Bernoulli, Multinomial and their like give other numbers in every run and in every
runtime, also with a seed (the standard does not fix the generator). What depends on them cannot be compared.

How it shows: the reference does not give the same answer twice.

How we test for it: nodes of these operators whose output is needed.

What it is confused with: non-determinism of the engine (RUN001).

How to repair: make the noise an input of the model.

Sources: ONNX operators RandomNormal, RandomUniform, Bernoulli, Multinomial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.graph import closure_of
from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, make_finding, name_places, offer_by_hand
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding

_RANDOM = of_kind("random")


def _look(sheet: Sheet) -> Iterator[Finding]:
    needed = {id(node) for node in closure_of(sheet.model.graph.outputs)[0]}
    places = [
        place
        for place in sheet.places
        if place.node.op_type in _RANDOM and not place.node.domain and (place.inside or id(place.node) in needed)
    ]
    if places:
        yield make_finding(
            "contributing",
            (
                f"{format_plural(len(places), 'node')} that draw random numbers ({name_places(places)}): what depends on "
                "them is never the same"
            ),
            because="the operator is random by definition",
            places=places,
            repairs=(
                offer_by_hand(
                    "noise_as_input", "make the noise an input of the model, so that both sides get the same"
                ),
            ),
        )


_NOISE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  n = RandomNormalLike(x)
  y = Add(x, n)
}"""

RULE = Rule(
    code="RUN101",
    title="Operators that draw random numbers",
    look=_look,
    holds=(RuleExample(model=_NOISE, role="contributing", node="RandomNormalLike#0"),),
    holds_not=(RuleExample(model=_NOISE.replace("Add(x, n)", "Neg(x)")),),
)
