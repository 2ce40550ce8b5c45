"""A chain of Casts loses precision and comes back.

What goes wrong: a tensor is cast to a smaller type and back: FP32 -> FP16 -> FP32 rounds every element (and overflows
beyond 65,504); float -> integer -> float cuts off the fraction; int64 -> int32 -> int64 wraps large numbers. The type
afterwards is the one before, so that nobody sees it. Converters and exporters leave such pairs behind; runtimes may
remove them, which makes two runtimes disagree.

How it shows: an error of the smaller type's size in a model that is declared FP32, or a difference between runtimes
that remove the pair and those that do not.

How we test for it: pairs of Casts with nothing but moves between them, whose middle type does not hold every number of
the first and whose last type holds more than the middle one. Through a smaller float it contributes; through an
integer it is information: truncation is usually meant.

What it is confused with: rounding of the engine itself (grades).

How to repair: remove both Casts, unless the rounding is meant.

Sources: ONNX operator Cast-19 (conversions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._casts import CastPair, cast_pairs
from parityscope.linting._telling import format_plural, make_finding, name_places, offer_by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding, Role


def _look(sheet: Sheet) -> Iterator[Finding]:
    found: dict[tuple[str, str, str], list[CastPair]] = {}
    for pair in cast_pairs(sheet):
        if pair.loses and pair.comes_back:
            found.setdefault(pair.types, []).append(pair)
    for types, held in found.items():
        yield _show_finding(types, held)


def _show_finding(types: tuple[str, str, str], held: list[CastPair]) -> Finding:
    rounds = held[0].through_float
    role: Role = "contributing" if rounds else "information"
    places = list(dict.fromkeys(pair.first for pair in held))
    effect = (
        f"every element is rounded to {types[1]} although the type afterwards is {types[2]}"
        if rounds
        else "what an integer does not hold is cut off, which is usually meant"
    )
    return make_finding(
        role,
        f"{format_plural(len(held), 'chain')} {' -> '.join(types)} at {name_places(places)}: {effect}",
        because=f"{types[1]} does not hold every number of {types[0]}",
        places=places,
        details={"types": list(types), "second": [pair.second.name for pair in held[:200]]},
        repairs=(
            offer_by_hand(
                "remove_casts",
                f"remove both Casts, {places[0].name} and {held[0].second.name}, unless the rounding is meant",
            ),
        )
        if rounds
        else (),
    )


def _model_with_chain(first: int, second: int, source: str = "float", target: str = "float") -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]> g ({source}[4] x) => ({target}[2,2] y) {{
      a = Cast <to = {first}> (x)
      s = Constant <value_ints = [2, 2]> ()
      b = Reshape(a, s)
      y = Cast <to = {second}> (b)
    }}"""


RULE = Rule(
    code="CST101",
    title="A chain of Casts loses precision and comes back",
    look=_look,
    holds=(
        RuleExample(model=_model_with_chain(10, 1), role="contributing", node="Cast#0"),
        RuleExample(model=_model_with_chain(16, 1), role="contributing"),
        RuleExample(model=_model_with_chain(7, 1), role="information"),
        RuleExample(model=_model_with_chain(6, 7, "int64", "int64"), role="information"),
    ),
    holds_not=(
        RuleExample(model=_model_with_chain(11, 1)),
        RuleExample(model=_model_with_chain(1, 10, "float16", "float16")),
        RuleExample(model=_model_with_chain(10, 10, "float", "float16")),
        RuleExample(model=_model_with_chain(7, 6, "int32", "int32")),
    ),
)
