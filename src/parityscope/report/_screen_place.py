"""Where it begins: the layer of the first cause, what only passes its error on, or what lies outside of every layer."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from parityscope.report._no_cause import FROM_OUTPUTS
from parityscope.report.screen_rows import make_row
from parityscope.report.words import as_number, call_name, clean, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.report.screen_rows import Row

_SMALL = 0.1  # of what a layer inherits: it only passes that on; chosen
# Where causes of these codes and families are, which have no layer.
_PLACES: Mapping[str, str] = {
    "DAT006": "no single layer, but the budget",
    "DAT007": "no single layer, but elements of an output",
    "DAT008": "no single layer, but elements that are nearly zero",
    "DAT009": "in the reference, not in the candidate",
    "DAT010": "no single layer, but the order of an output's rows",
    "DAT": "before the network, in the data",
    "PRE": "before the network, in how the inputs are prepared",
    "BND": "behind the network, in how the outputs are bound",
    "ENV": "no single layer, but the settings of the runtime",
    "ACC": "no single layer: all of them round",
    "RUN": "no single layer, but the run itself",
    "SHP": "no single layer, but between the rows of a batch",
    "SEQ": "no single layer, but from call to call",
}


def rows_of_place(document: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """The layer of the first cause, else of the first suspect, and what only hands its error on."""
    first = causes[0] if causes else {}
    # Where few tensors were recorded the node that is wrong lies before the one that shows it.
    site = (first.get("details") or {}).get("changed") or first.get("site")
    if elsewhere := place_outside(first):
        details = first.get("details") or {}
        moved = list(details.get("order") or ()) if str(first["code"]).startswith("BND") else []
        named = ", ".join(call_name(one) for one in moved or [(site or {}).get("tensor") or ""] if one)
        held = list(details.get("elements") or ()) if first["code"] == "DAT007" else []
        counted = f", {format_count(len(held))} of {format_count(details.get('of'))}" if held else ""
        counted += f", the first at {held[0]}" if len(held) > 1 else f", at {held[0]}" if held else ""
        yield make_row("Where", f"{elsewhere}{f': {named}' if named else ''}{counted}")
        return
    if not causes and (region := region_of(document)):
        count, start, end, every = region
        ends = f"from '{call_name(start)}' to '{call_name(end)}'"
        told = (
            f"anywhere in the network's {format_count(every)} nodes, or in what enters it"
            if count == every
            else f"one or more of {format_count(count)} nodes, {ends}"
        )
        yield make_row("Where", told)
        return
    ranked = document.get("suspects", ())
    held = [clean(name) for name in ranked[0].get("region", ())] if not causes and ranked else []
    if len(held) > 1:
        yield make_row("Where", f"one of {format_count(len(held))} nodes, from {held[0]} to {held[-1]}")
        return
    site = site or (ranked[0].get("site") if ranked else None)
    if held and site and held[0] != clean(site.get("node") or ""):  # where what all recorded tensors read comes from
        yield make_row("Where", held[0])
        return
    if not site:
        return
    node, tensor = clean(site.get("node") or ""), clean(site.get("tensor") or "")
    index = as_number(site.get("index"))
    nodes = as_number((document.get("model") or {}).get("nodes"))
    place = f"{number}, " if (number := number_node(index, nodes)) else ""
    # A node without a name is called by what it gives elsewhere.
    unnamed = re.fullmatch(r"\w+#\d+", node) and tensor
    kind = f" ({clean(site.get('op_type'))})" if site.get("op_type") else ""
    kind = f", which gives '{call_name(tensor)}'" if unnamed else kind
    passing = _describe_earlier_loss(document, index) or describe_handing_on(document.get("tensors", ()), index)
    if "NaN" in passing and not any(map(_holds_lost, document.get("outputs", ()))):
        passing += "; the outputs are finite"
    yield make_row("Where", f"{place}{call_name(node or tensor)}{kind}{passing}")


def region_of(document: Mapping[str, Any]) -> tuple[int, str, str, int] | None:
    """Of how many nodes one holds the error, the first and the last one's tensor, and how many there are, as outputs tell."""
    asked = [one for one in document.get("findings", ()) if one.get("code") == FROM_OUTPUTS and one["role"] != "cause"]
    details = asked[0].get("details") or {} if asked else {}
    region = [clean(name) for name in details.get("region") or ()]
    nodes = as_number(details.get("nodes"))
    return (len(region), region[0], region[-1], int(nodes)) if region and nodes else None


def number_node(index: float | None, nodes: float | None) -> str:
    """Which node of how many, counted from 0 as in the names of nodes that have none; "" where that is not known."""
    if index is None or not nodes or not 0 <= index < nodes:
        return ""
    return f"node #{format_count(index)} of #0 to #{format_count(nodes - 1)}"


def _describe_earlier_loss(document: Mapping[str, Any], index: float | None) -> str:
    """Where NaN or infinity begins before a place, and that it matters less there; "" where it does not."""
    lost = [one for one in document.get("tensors", ()) if _holds_lost(one)]
    earlier = [one for one in lost if index is not None and (as_number(one.get("index")) or 0) < index]
    if not earlier:
        return ""
    first = min(earlier, key=lambda one: as_number(one.get("index")) or 0)
    where = f"#{format_count(first['index'])} ({clean(first.get('op_type') or 'node')})"
    born = {
        as_number((one.get("site") or {}).get("index")) or 0: as_number(one.get("share"))
        for one in document.get("suspects", ())
        if math.isinf(as_number(one.get("introduced")) or 0.0)
    }
    own, *before = born.get(index or 0), *(share for each, share in born.items() if each < (index or 0))
    less = own is not None and before and all(share is not None and share < own for share in before)
    return (
        f"; NaN or infinity at {where} upstream changes the outputs less"
        if less
        else f"; NaN or infinity begins at {where}"
    )


def place_outside(finding: Mapping[str, Any]) -> str:
    """Where a cause is that has no layer; "" where it has one."""
    code = str(finding.get("code", ""))
    details = finding.get("details") or {}
    if code[:3] == "BND" and (code == "BND002" or set(details.get("order") or ()) & {*details.get("inputs", ())}):
        return "before the network, in how the inputs are bound"
    if details.get("products"):  # these few round, and others do not
        return ""
    entered = (finding.get("site") or {}).get("op_type") == "Input"
    return _PLACES.get(code) or _PLACES.get(code[:3]) or (_PLACES["PRE"] if entered else "")


def describe_handing_on(tensors: Sequence[Mapping[str, Any]], index: float | None) -> str:
    """How many nodes behind a place are wrong, or hold what is not finite, by what they inherit; "" where none is."""
    behind = [
        one
        for one in tensors
        if index is not None
        and (as_number(one.get("index")) or 0) > index
        and (one.get("grade") == "beyond" or _holds_lost(one))
        and one.get("inherited") is not None
        and one.get("introduced") is not None
        and (as_number(one["introduced"]) or 0.0) <= _SMALL * (as_number(one["inherited"]) or 0.0)
    ]
    if not behind:
        return ""
    count = format_count(len({as_number(one["index"]) for one in behind}))
    if all(map(_holds_lost, behind)):
        return f"; {count} downstream only pass on NaN or infinity"
    return f"; {count} downstream only pass on the error"


def _holds_lost(tensor: Mapping[str, Any]) -> bool:
    return bool(as_number((tensor.get("nonfinite") or {}).get("candidate")))
