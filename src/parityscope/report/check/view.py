"""What every form of a check says of a pair: one line, and what the answer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.as_text import plain_first_screen
from parityscope.report.diff.view import describe_fact, describe_output
from parityscope.report.listed import view_closing
from parityscope.report.words import as_number, clean, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYMBOLS = {"beyond": "✕", "worse": "✕", "error": "✕", "incomplete": "?", "better": "✓", "within": "✓"}
_STYLES = {"beyond": "beyond", "worse": "beyond", "error": "beyond", "incomplete": "incomplete"}
_WIDE = 1000  # columns: the title of a first screen on one line


def view_check(document: Mapping[str, Any]) -> dict[str, Any]:
    """All that was checked, worded."""
    verdict = str(document["verdict"])
    return {
        **view_status(verdict),
        "title": describe_summary(document),
        "file": clean(document["file"]),
        "pairs": [view_pair(one) for one in document["pairs"]],
        "better": document["counts"]["better"],
        "updated": document["updated"],
        "unknown": sum(one["changes"] is None and one["study"] is not None for one in document["pairs"]),
        **view_closing(document),
    }


def view_status(status: str) -> dict[str, str]:
    """How what became of a pair, or of all, looks: its sign and its style."""
    return {"symbol": _SYMBOLS.get(status, "✓"), "css": _STYLES.get(status, "within")}


def view_pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair worded: `failed` says whether it makes the check fail."""
    status = str(pair["status"])
    return {
        "name": clean(pair["name"]),
        "status": status,
        **view_status(status),
        "failed": status in {"beyond", "worse", "error"},
        "told": describe_pair(pair),
        "seconds": format_seconds(pair["seconds"]),
        "report": clean(pair["report"]),
        "screen": _screen_of(pair),
    }


def describe_pair(pair: Mapping[str, Any]) -> str:
    """The line of a pair, behind its name."""
    status = str(pair["status"])
    if status == "error":
        error = pair["error"]
        return "; ".join(clean(error[key]) for key in ("problem", "fix") if error[key])
    if status in {"worse", "better"}:
        return f"{_describe_changes(pair, status)}{_describe_since(pair['changes'])}"
    if status == "beyond":
        return _title_of_screen(pair["study"])
    skipped = [*(pair["changes"] or {}).get("skipped", ()), *pair["study"]["skipped"]]
    unjudged = [one for one in skipped if one["asked"]]
    if status == "incomplete" and unjudged:
        return f"{clean(unjudged[0]['what'])}: {clean(unjudged[0]['reason'])}"
    return _describe_worst_output(pair)


def describe_summary(document: Mapping[str, Any]) -> str:
    """How many pairs there are of each kind, in one line."""
    counts = document["counts"]
    words = {
        "beyond": "beyond the policy",
        "worse": "worse than the baseline",
        "error": "could not be examined",
        "incomplete": "not judged",
        "better": "better than the baseline",
        "within": "within",
    }
    return ", ".join(f"{counts[name]} {told}" for name, told in words.items() if counts[name])


def _screen_of(pair: Mapping[str, Any]) -> str:
    """The first screen of a pair's study, or its error in full."""
    if pair["study"] is not None:
        return plain_first_screen(pair["study"])
    error = pair["error"]
    labels = (("", "problem"), ("where: ", "where"), ("fix:   ", "fix"))
    return "\n".join(f"{label}{clean(error[key])}" for label, key in labels if error[key])


def _title_of_screen(study: Mapping[str, Any]) -> str:
    return plain_first_screen(study, width=_WIDE).splitlines()[0][2:].strip()


def _describe_changes(pair: Mapping[str, Any], status: str) -> str:
    found = [one for one in pair["changes"]["outputs"] if one["change"] == status]
    said = f"{status} than the baseline: {clean(found[0]['name'])!r} {describe_output(found[0])}"
    return f"{said}; {len(found) - 1} more outputs too" if len(found) > 1 else said


def _describe_since(changes: Mapping[str, Any]) -> str:
    facts = changes["facts"]
    if not facts:
        return ""
    more = f" and {len(facts) - 1} more" if len(facts) > 1 else ""
    return f"; since {describe_fact(facts[0])}{more}"


def _describe_worst_output(pair: Mapping[str, Any]) -> str:
    rows = pair["study"]["outputs"]
    worst = max(rows, key=lambda one: as_number(one.get("rel_l2")) or 0.0, default=None)
    if worst is None:
        return ""
    told = f"{clean(worst['name'])!r} differs by {format_percent(worst.get('rel_l2'))}"
    changes = pair["changes"]
    if changes is None:
        return f"{told}; it has no baseline yet"
    before = next((one["errors"][0] for one in changes["outputs"] if one["name"] == worst["name"]), None)
    return told if before is None else f"{told}; the baseline is {format_percent(before)}"
