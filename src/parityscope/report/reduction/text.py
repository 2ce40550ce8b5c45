"""A reduction for a terminal: what is left, of what, in how many runs, and what was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import (
    print_heading,
    print_not_examined,
    print_paragraph,
    print_table,
)
from parityscope.report.words import format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def print_reduction(console: Console, document: Mapping[str, Any]) -> None:
    """Writes `document` to a console."""
    finding, nodes, elements = document["finding"], document["nodes"], document["elements"]
    plural = "" if nodes["after"] == 1 else "s"
    numbers = f"{elements['after']:,} of {elements['before']:,} numbers of inputs and constants"
    print_paragraph(
        console,
        f"{nodes['after']} node{plural} of {nodes['before']} and {numbers} still "
        f"show {finding['code']} at {finding['node'] or 'no single place'}, in {document['runs']} runs",
        "bold",
    )
    print_paragraph(console, document["claim"] or finding["claim"])
    for line in document["model"][:8]:
        print_paragraph(console, f"  {line}")
    for line in document["candidate_model"][:8]:
        print_paragraph(console, f"  candidate: {line}")
    for row in document["outputs"]:
        off, most = format_percent(row["rel_l2"]), format_figure(row["max_abs"])
        print_paragraph(console, f"  {row['name']} differs by {off}, at most {most}")
    print_heading(console, "What was tried")
    rows = [
        (
            one["stage"],
            one["what"],
            str(one["nodes"] or ""),
            one["shows"] if one["shows"] == "the same" else _describe_attempt(one),
        )
        for one in document["attempts"]
    ]
    print_table(console, ("", "", "nodes", "shows"), rows, right=(2,))
    for note in document["notes"]:
        print_paragraph(console, f"note: {note}", "yellow")
    print_not_examined(console, document["skipped"])


def _describe_attempt(attempt: Mapping[str, Any]) -> str:
    return f"{attempt['shows']}: {attempt['told']}" if attempt["told"] else str(attempt["shows"])
