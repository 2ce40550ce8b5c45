"""The three tiles under the verdict: what users of the model see, where that begins, and what was tried against it.

One number each, as an answer of the first screen tells it too, with what it is to be held against.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._screen_place import describe_handing_on, number_node, place_outside
from parityscope.report._tensors import GRADES
from parityscope.report._usability import badness_of_output, lost_elements
from parityscope.report.repair_effects import cause_of, change_by_proof
from parityscope.report.words import (
    as_number,
    call_name,
    clean,
    format_count,
    format_error_of_trial,
    format_figure,
    format_percent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Tile = dict[str, str]
_BECOMES = "\N{RIGHTWARDS ARROW}"


def view_tiles(document: Mapping[str, Any], offered: Sequence[Mapping[str, Any]]) -> list[_Tile]:
    """At most three: `label`, `value`, `note`, and `tone` (a verdict, or ""); `offered` are the view's repairs."""
    return [*_tile_of_error(document), *_tile_of_place(document), *_tile_of_trial(document, offered)]


def _tile_of_error(document: Mapping[str, Any]) -> list[_Tile]:
    """Elements that are not finite, else the error of the worst output beside what its format explains."""
    outputs = list(document.get("outputs", ()))
    label = "What users of the model see"
    lost = [lost_elements(one) for one in outputs]
    if bad := sum(each for each, _ in lost):
        whole = sum(elements for _, elements in lost)
        of = f" of {format_count(whole)}" if whole else ""
        hurt = sum(bool(each) for each, _ in lost)
        note = f"in {format_count(hurt)} of {format_count(len(outputs))} outputs, where the reference has numbers"
        return [_make_tile(label, f"{format_count(bad)}{of} values NaN or infinite", note, "beyond")]
    measured = [one for one in outputs if as_number(one.get("rel_l2")) is not None]
    if not measured:
        return []
    worst = max(measured, key=badness_of_output)
    declared = str((document.get("policy") or {}).get("declared") or "")
    expected = as_number((worst.get("expected") or {}).get(declared))
    name = call_name(worst.get("name", ""))
    explains = (
        f"; {GRADES.get(declared, clean(declared))}'s expected rounding error is {format_percent(expected, exact=True)}"
        if expected
        else ""
    )
    error = as_number(worst["rel_l2"]) or 0.0
    value = f"{format_percent(error, exact=True)} error"
    if not math.isfinite(error):
        most = as_number(worst.get("max_abs"))
        value = "not finite" if most is None or not math.isfinite(most) else f"off by up to {format_figure(most)}"
    tone = str(worst.get("verdict") or "")
    return [_make_tile(label, value if error else "the same values", f"relative L2 of '{name}'{explains}", tone)]


def _tile_of_place(document: Mapping[str, Any]) -> list[_Tile]:
    compared = len(document.get("tensors", ()))
    seen = f"{format_count(compared)} tensors were compared" if compared > 1 else "the outputs alone were compared"
    if document.get("verdict") != "beyond":
        return [_make_tile("Where", "no layer stands out" if compared > 1 else "layers were not looked at", seen)]
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    ranked = document.get("suspects", ())
    first = causes[0] if causes else {}
    if elsewhere := place_outside(first):
        return [_make_tile("Where", elsewhere, seen)]
    site = first.get("site") or (ranked[0].get("site") if ranked else None)
    index = as_number((site or {}).get("index"))
    nodes = as_number((document.get("model") or {}).get("nodes"))
    if not site or not (number := number_node(index, nodes)):
        return [_make_tile("Where", "not known", seen)]
    passing = describe_handing_on(document.get("tensors", ()), index)
    named = f"{call_name(site.get('node') or site.get('tensor') or '')} ({clean(site.get('op_type') or 'node')})"
    return [_make_tile("Where", number, f"{named}{passing}")]


def _tile_of_trial(document: Mapping[str, Any], offered: Sequence[Mapping[str, Any]]) -> list[_Tile]:
    """What the best repair left when it was tried; else what putting the cause into the reference left."""
    for repair in offered:
        if trial := repair["trial"]:
            before, _, after = trial["change"].partition(" -> ")
            told = {"within": "✓ within", "beyond": "still beyond"}.get(trial["verdict"], "not judged")
            return [
                _make_tile(
                    "Fix, tried on a copy" if trial["file"] else "Fix, tried",
                    f"{before} {_BECOMES} {after}",
                    f"{told}: {repair['title']}",
                    trial["verdict"],
                )
            ]
    for repair in offered:
        cause = cause_of(repair, document)
        if cause is not None and (proof := change_by_proof(document, cause)):
            note = "between both sides, once the reference has the same fault; the repair itself was not tried"
            value = f" {_BECOMES} ".join(map(format_error_of_trial, proof))
            return [_make_tile("Cause, put into the reference", value, note)]
    if document.get("verdict") == "beyond":
        said = "what is offered was not tried" if offered else "no repair is known for this"
        return [_make_tile("Fix", "not tried" if offered else "none", said)]
    return []


def _make_tile(label: str, value: str, note: str, tone: str = "") -> _Tile:
    return {"label": label, "value": value, "note": note, "tone": tone}
