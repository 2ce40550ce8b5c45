"""Logs for a terminal: what they say, findings with what to do, every line that matters with its effect, differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import (
    print_head,
    print_heading,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report.listed import print_listed, print_skipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

_STYLES = {"harmful": "red", "may harm": "yellow", "harmless": "green"}


def print_logs(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of what logs say."""
    print_head(console, model, [f"{log['name']}: {log['about']}" for log in model["logs"]])
    print_listed(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    print_listed(console, "Contributing", model["contributing"])
    print_listed(console, "Information", model["information"])
    if model["comparison"]:
        _print_comparison(console, model["comparison"])
    for log in model["logs"]:
        _print_log(console, log)
    print_skipped(console, "What the log does not say", model["skipped"])


def _print_comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    print_heading(console, "What differs")
    print_paragraph(console, comparison["summary"])
    print_table(console, ("", "first", "second"), comparison["differences"], apart=True)
    if comparison["changed"]:
        print_table(console, ("node", "type", "layer in the first", "in the second"), comparison["changed"], apart=True)
        print_rows_left(console, comparison["changed_more"], " in the JSON")
    for side, number, names in comparison["only"]:
        print_paragraph(console, f"only in {side}: {number} nodes: {names}")


def _print_log(console: Console, log: Mapping[str, Any]) -> None:
    print_heading(console, f"What {log['name']} says")
    print_table(console, ("", ""), log["facts"])
    for line in log["explained"]:
        console.print()
        print_paragraph(console, f"line {line['line']}, {line['count']} times: {line['text']}", "dim")
        print_paragraph(console, f"{line['effect']}: {line['means']}; {line['why']}", _STYLES[line["effect"]], indent=1)
    if log["unexplained"]:
        print_heading(console, "Warnings and errors that nothing is known about")
    for line in log["unexplained"]:
        print_paragraph(console, f"line {line['line']}: {line['text']}")
