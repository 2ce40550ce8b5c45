"""The figures that carry the verdict, for the top of a report: what a reader should know within ten seconds.

The worst output beside what its arithmetic was predicted to cost, the layer that introduces most, what is left
unexplained, the repair or the cause that was tried, and how much was not examined.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._tensors import GRADES, broken_elements, size_or_broken
from parityscope.report.words import clean, figure, number, percent, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["key_figures"]

_Figure = dict[str, str]
_BECOMES = "\N{RIGHTWARDS ARROW}"


def key_figures(
    document: Mapping[str, Any], offered: Sequence[Mapping[str, Any]], skips: Sequence[Mapping[str, Any]]
) -> list[_Figure]:
    """At most five figures, each a label, a value and a note; `offered` are the view's repairs, `skips` its skips."""
    shown = [*_worst_output(document), *_first_suspect(document)]
    left = number(document.get("unexplained"))
    if left is not None:
        shown.append(
            {"label": "Unexplained", "value": percent(left), "note": "of the output error is left without a suspect"}
        )
    return [*shown, *_tried(offered), *_examined(document, skips)]


def _worst_output(document: Mapping[str, Any]) -> list[_Figure]:
    judged = [(number(row.get("rel_l2")), row) for row in document.get("outputs", ())]
    measured = [(_severity(value), row) for value, row in judged if value is not None]
    if not measured:
        return []
    _, row = max(measured, key=lambda pair: pair[0])
    broken = broken_elements(row)
    note = f"{'elements of one side alone' if broken else 'relative L2'} at {clean(row.get('name', ''))}"
    if (finite := number(row.get("rel_l2_finite"))) is not None and not math.isfinite(number(row["rel_l2"]) or 0.0):
        note += f"; {figure(finite)} over its finite elements"
    declared = (document.get("policy") or {}).get("declared", "")
    predicted = number((row.get("expected") or {}).get(declared))
    if predicted is not None:
        note += f"; {figure(predicted)} was predicted for {GRADES.get(declared, clean(declared))}"
    return [{"label": "Output error", "value": size_or_broken(row["rel_l2"], broken), "note": note}]


def _severity(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _first_suspect(document: Mapping[str, Any]) -> list[_Figure]:
    ranked = document.get("suspects", ())
    if not ranked or document.get("verdict") == "within":
        return []
    first = ranked[0]
    site = first.get("site", {})
    name = clean(site.get("node") or site.get("tensor", ""))
    return [
        {
            "label": "Introduced by one layer" if len(first.get("region", ())) <= 1 else "Introduced by one region",
            "value": size_or_broken(first.get("introduced"), first.get("introduced_nonfinite")),
            "note": f"at {name}, which inherits {size(first.get('inherited'))}",
        }
    ]


def _tried(offered: Sequence[Mapping[str, Any]]) -> list[_Figure]:
    """What the best repair left when it was tried; else what putting the cause into the reference left."""
    for repair in offered:
        if trial := repair["trial"]:
            note = f"output error with {repair['repair']}, {trial['verdict']}"
            value = f"{trial['before']} {_BECOMES} {trial['after']}"
            return [{"label": "Repair tried", "value": value, "note": note}]
    for repair in offered:
        if cause := repair["cause"]:
            note = "output error once the reference is given the same fault"
            value = f"{cause['before']} {_BECOMES} {cause['after']}"
            return [{"label": "Cause reproduced", "value": value, "note": note}]
    return []


def _examined(document: Mapping[str, Any], skips: Sequence[Mapping[str, Any]]) -> list[_Figure]:
    compared = len(document.get("tensors", ()))
    if not compared and not skips:
        return []
    number_of = sum(len(row["names"]) or 1 for row in skips)
    value = "nothing" if not number_of else f"{number_of:,} {'item' if number_of == 1 else 'items'}"
    note = f"{compared:,} tensors were compared" if compared else "the outputs alone were compared"
    return [{"label": "Not examined", "value": value, "note": note + (", see the last part" if number_of else "")}]
