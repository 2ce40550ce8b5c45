"""What changed between two studies -> text | json | html | markdown: the page of `parityscope diff`. All of it is pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_labelled, print_paragraph
from parityscope.report._markup import escape_markup, markdown_table
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import view_closing
from parityscope.report.words import (
    ABSENT,
    as_number,
    clean,
    format_bytes,
    format_count,
    format_percent,
    format_ratio,
    format_seconds,
    shorten_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from parityscope.study.changes.comparing import StudyChanges

_KIND = "diff"
_SYMBOLS = {
    "worse": ("\N{MULTIPLICATION X}", "beyond"),
    "better": ("\N{CHECK MARK}", "within"),
    "same": ("\N{CHECK MARK}", "within"),
    "incomplete": ("?", "incomplete"),
}
_MOST_FACTS = 3  # named on the first screen; chosen
_MOST_OUTPUTS = 4
_NAME = 60  # characters of a name in a row
_ORDER = {"worse": 0, "better": 1, "same": 2}
_MOST = 30  # rows of a table; chosen, a screen


def changes_document(
    found: StudyChanges,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    places: tuple[str, str],
    command: str = "",
) -> dict[str, Any]:
    """Everything that changed, as plain data; `places` are where both studies lie."""
    return plain_items(
        {
            **document_head(command, kind=_KIND),
            "verdict": found.verdict,
            "before": _side_of(before, places[0]),
            "after": _side_of(after, places[1]),
            "outputs": found.outputs,
            "facts": found.facts,
            "causes": found.causes,
            "layers": found.layers,
            "layers_compared": found.layers_compared,
            "precisions": [dict(zip(("node", "before", "after"), one, strict=True)) for one in found.precisions],
            "seconds": found.seconds,
            "nbytes": found.nbytes,
            "skipped": found.skipped,
        }
    )


def _side_of(document: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "study": place,
        "created": document.get("created", ""),
        "model": (document.get("model") or {}).get("name", ""),
        "candidate": (document.get("candidate") or {}).get("target", ""),
        "verdict": document.get("verdict", ""),
    }


def _view_changes(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a terminal, a page and a comment show of a diff."""
    symbol, css = _SYMBOLS[document["verdict"]]
    before, after = document["before"], document["after"]
    outputs = sorted(map(_view_output, document["outputs"]), key=lambda one: _ORDER[one["change"]])
    return {
        "verdict": clean(document["verdict"]),
        "symbol": symbol,
        "css": css,
        "title": _describe_verdict(document),
        "model": clean(after["model"]),
        "basis": _describe_basis(before, after),
        "rows": [{"label": label, "text": text} for label, text in _list_rows(document, outputs)],
        "outputs": outputs,
        "facts": [_view_fact(one) for one in document["facts"]],
        "causes": [_view_cause(one) for one in document["causes"]],
        "layers": [_view_layer(one) for one in document["layers"]],
        **view_closing(document),
    }


def _describe_verdict(document: Mapping[str, Any]) -> str:
    counts = {way: sum(one["change"] == way for one in document["outputs"]) for way in _ORDER}
    whole = len(document["outputs"])
    if document["verdict"] == "worse":
        told = f"worse: {counts['worse']} of {whole} outputs"
        return f"{told}; better: {counts['better']}" if counts["better"] else told
    if document["verdict"] == "incomplete":
        return "nothing worse was found, and something could not be compared"
    if document["verdict"] == "better":
        return f"better: {counts['better']} of {whole} outputs, none worse"
    return "nothing changed beyond noise"


def _describe_basis(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    targets = [clean(one["candidate"]) for one in (before, after)]
    told = targets[0] if targets[0] == targets[1] else f"{targets[0]} → {targets[1]}"
    return f"{told}, {clean(before['created'])} → {clean(after['created'])}"


def _list_rows(document: Mapping[str, Any], outputs: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    changed = [one for one in outputs if one["change"] != "same"]
    for one in changed[:_MOST_OUTPUTS]:
        yield one["change"].capitalize(), f"{one['name']!r}: {one['told']}"
    if len(changed) > _MOST_OUTPUTS:
        yield "", f"and {len(changed) - _MOST_OUTPUTS} more outputs"
    yield from _rows_of_facts(document)
    yield from _rows_of_causes(document["causes"])
    yield from _rows_of_layers(document)
    yield from _rows_of_measures(document)
    for one in document["skipped"]:
        yield "Not compared", f"{clean(one['what'])}: {clean(one['reason'])}"


def _rows_of_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    facts = document["facts"]
    changed = document["verdict"] in {"worse", "better"}
    if not facts:
        if changed:
            yield "Since", "nothing that the studies tell of changed: run one of them again"
        return
    label = "Since" if changed else "Changed"
    for place, one in enumerate(facts[:_MOST_FACTS]):
        yield label if place == 0 else "", describe_fact(one)
    if len(facts) > _MOST_FACTS:
        yield "", f"and {len(facts) - _MOST_FACTS} more facts; one of them did it, or several together"
    elif changed and len(facts) > 1:
        yield "", "one of these did it, or several together"


def describe_fact(fact: Mapping[str, Any]) -> str:
    """A fact that changed, in one line."""
    name = shorten_name(fact["name"], _NAME)
    was, now = (shorten_name(fact[key], _NAME) if fact[key] else "none" for key in ("before", "after"))
    return f"{clean(fact['place'])} {name}: {was} → {now}"


def _rows_of_causes(causes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for change in ("new", "gone"):
        found = [one for one in causes if one["change"] == change]
        for one in found[:2]:
            yield f"{change.capitalize()} cause", _describe_cause(one)
        if len(found) > 2:
            yield "", f"and {len(found) - 2} more causes"


def _describe_cause(cause: Mapping[str, Any]) -> str:
    at = f", at {shorten_name(cause['place'], _NAME)}" if cause["place"] else ""
    return f"{clean(cause['code'])} {clean(cause['title'])}{at}"


def _rows_of_layers(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    layers = document["layers"]
    if layers:
        first = layers[0]
        yield "Layers", f"{len(layers)} of {document['layers_compared']} changed, first {_describe_layer(first)}"
        worst = max(layers, key=_moved_error)
        if worst is not first:
            yield "", f"most {_describe_layer(worst)}"
    precisions = document["precisions"]
    if precisions:
        one = precisions[0]
        named = f"{shorten_name(one['node'], _NAME)}: {clean(one['before'])} → {clean(one['after'])}"
        yield "Precision", f"{len(precisions)} nodes compute in another, first {named}"


def _moved_error(layer: Mapping[str, Any]) -> float:
    was, now = (as_number(one) or 0.0 for one in layer["errors"])
    moved = abs(now - was)
    return math.inf if math.isnan(moved) else moved


def _describe_layer(layer: Mapping[str, Any]) -> str:
    where = f"{shorten_name(layer['node'] or layer['tensor'], _NAME)} ({clean(layer['op_type'])})"
    was, now = (format_percent(one) for one in layer["errors"])
    return f"{where}: it introduces {was} → {now}" if layer["measure"] == "introduced" else f"{where}: {was} → {now}"


def _rows_of_measures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    was, now = document["seconds"]
    ratio = None if not was or not now else as_number(now / was)
    if ratio is not None and not 1 / 2 <= ratio <= 2:  # measured once: what is less is the machine's
        yield (
            "Time",
            f"{format_seconds(was)} → {format_seconds(now)} a sample; it was measured once, and verify measures it well",
        )
    was, now = document["nbytes"]
    if was and now and was != now:
        yield "Size", f"{format_bytes(was)} → {format_bytes(now)}"


def _view_output(output: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": clean(output["name"]),
        "change": output["change"],
        "verdicts": _told_change(*map(clean, output["verdicts"])),
        "errors": _told_change(*(format_percent(one, exact=True) for one in output["errors"])),
        "nonfinite": _told_change(*map(format_count, output["nonfinite"])),
        "told": describe_output(output),
    }


def describe_output(output: Mapping[str, Any]) -> str:
    """How an output changed, in one line."""
    return "; ".join(_list_words(output))


def _list_words(output: Mapping[str, Any]) -> Iterator[str]:
    was, now = map(clean, output["verdicts"])
    if was != now:
        yield f"{was} → {now}"
    lost, gained = output["nonfinite"]
    if lost != gained:
        yield f"{format_count(lost)} → {format_count(gained)} elements are NaN or infinite"
    old, new = output["errors"]
    ratio = format_ratio(old, new) if output["change"] != "same" else ""
    if any(one is not None for one in (old, new)):
        yield f"{format_percent(old)} → {format_percent(new)}{f', {ratio}' if ratio else ''}"


def _told_change(was: str, now: str) -> str:
    return was if was == now else f"{was} → {now}"


def _view_fact(fact: Mapping[str, Any]) -> dict[str, str]:
    return {key: clean(fact[key]) or ABSENT for key in ("place", "name", "before", "after")} | {
        "matters": clean(fact["matters"])
    }


def _view_cause(cause: Mapping[str, Any]) -> dict[str, str]:
    shares = _told_change(*(format_percent(one) for one in cause["shares"]))
    return {
        "change": cause["change"],
        "code": clean(cause["code"]),
        "title": clean(cause["title"]),
        "place": clean(cause["place"]) or ABSENT,
        "share": shares,
    }


def _view_layer(layer: Mapping[str, Any]) -> dict[str, str]:
    return {
        "change": layer["change"],
        "node": clean(layer["node"] or layer["tensor"]),
        "op_type": clean(layer["op_type"]),
        "measure": "introduced" if layer["measure"] == "introduced" else "rel_l2",
        "errors": _told_change(*(format_percent(one, exact=True) for one in layer["errors"])),
    }


def _print_changes(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what changed."""
    from rich.text import Text

    told = f"{model['symbol']} {model['model']}: {say_in_language(model['title'])}"
    console.print(Text(told, style=VERDICT_STYLES[model["css"]]))
    print_paragraph(console, model["basis"], "dim", indent=1)
    print_labelled(console, [(row["label"], row["text"]) for row in model["rows"]])


def _changes_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(_view_changes(document))) + "\n"


def _list_lines(view: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {view['symbol']} {escape_markup(view['model'])}: {escape_markup(say_in_language(view['title']))}"
    yield ""
    yield escape_markup(view["basis"])
    outputs = [one for one in view["outputs"] if one["change"] != "same"]
    yield from markdown_table(
        ("output", "change", "verdict", "differs by (relative L2)"),
        [(one["name"], one["change"], one["verdicts"], one["errors"]) for one in outputs],
        most=_MOST,
    )
    yield from markdown_table(
        ("changed", "was", "now", "why that may matter"),
        [(f"{one['place']} {one['name']}", one["before"], one["after"], one["matters"]) for one in view["facts"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("cause", "", "at"),
        [(one["change"], f"{one['code']} {one['title']}", one["place"]) for one in view["causes"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("layer", "operator", "error"),
        [(one["node"], one["op_type"], one["errors"]) for one in view["layers"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("not compared", "why"), [(one["what"], one["reason"]) for one in view["skipped"]], most=_MOST
    )


FORMS = Forms(
    title="a diff",
    view=_view_changes,
    show=_print_changes,
    page=Page(template=TEMPLATES / "diff.html.j2"),
    others={"markdown": _changes_as_markdown},
)
