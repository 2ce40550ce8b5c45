"""A reduction for a terminal: what is left, of what, in how many runs, and what was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import heading, not_examined, say, table, written
from parityscope.report.words import figure, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`."""
    return written(_draw, document, width=width, color=color)


def _draw(console: Console, document: Mapping[str, Any]) -> None:
    finding, nodes, elements = document["finding"], document["nodes"], document["elements"]
    plural = "" if nodes["after"] == 1 else "s"
    say(
        console,
        f"{nodes['after']} node{plural} of {nodes['before']} and {elements['after']:,} numbers of {elements['before']:,} still "
        f"show {finding['code']} at {finding['node'] or 'no single place'}, in {document['runs']} runs",
        "bold",
    )
    say(console, document["claim"] or finding["claim"])
    for line in document["model"][:8]:
        say(console, f"  {line}")
    for line in document["candidate_model"][:8]:
        say(console, f"  candidate: {line}")
    for row in document["outputs"]:
        off, most = percent(row["rel_l2"]), figure(row["max_abs"])
        say(console, f"  {row['name']} differs by {off}, at most {most}")
    heading(console, "What was tried")
    rows = [
        (one["stage"], one["what"], str(one["nodes"] or ""), one["shows"] if one["shows"] == "the same" else _why(one))
        for one in document["attempts"]
    ]
    table(console, ("", "", "nodes", "shows"), rows, right=(2,))
    for note in document["notes"]:
        say(console, f"note: {note}", "yellow")
    not_examined(console, document["skipped"])


def _why(attempt: Mapping[str, Any]) -> str:
    return f"{attempt['shows']}: {attempt['told']}" if attempt["told"] else str(attempt["shows"])
