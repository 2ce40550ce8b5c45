"""Logs for a terminal: what they say, findings with what to do, every line that matters with its effect, differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, command_line, heading, more, say, table, written
from parityscope.report.log.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]

_STYLES = {"harmful": "red", "may harm": "yellow", "harmless": "green"}


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns (commands are never wrapped), with ANSI colours if `color`."""
    return written(_draw, view(document), width=width, color=color)


def _draw(console: Console, model: Mapping[str, Any]) -> None:
    say(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    if not model["causes"]:
        say(console, model["headline"], "bold")
    for log in model["logs"]:
        say(console, f"{log['name']}: {log['about']}", "dim")
    _section(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    _section(console, "Contributing", model["contributing"])
    _section(console, "Information", model["information"])
    if model["comparison"]:
        _comparison(console, model["comparison"])
    for log in model["logs"]:
        _log(console, log)
    if model["skipped"]:
        heading(console, "What the log does not say")
    for item in model["skipped"]:
        say(console, f"! {item['what']}: {item['reason']}")
        if item["fix"]:
            say(console, f"fix: {item['fix']}", "dim", indent=1)


def _section(console: Console, title: str, found: list[Mapping[str, Any]]) -> None:
    if found:
        heading(console, title)
    for finding in found:
        say(console, f"{finding['code']} {finding['title']}", "bold")
        say(console, finding["claim"], indent=1)
        for repair in finding["repairs"]:
            say(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)


def _comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    heading(console, "What differs")
    say(console, comparison["summary"])
    table(console, ("", "first", "second"), comparison["differences"], apart=True)
    if comparison["changed"]:
        table(console, ("node", "type", "layer in the first", "in the second"), comparison["changed"], apart=True)
        more(console, comparison["changed_more"], " in the JSON")
    for side, number, names in comparison["only"]:
        say(console, f"only in {side}: {number} nodes: {names}")


def _log(console: Console, log: Mapping[str, Any]) -> None:
    heading(console, f"What {log['name']} says")
    table(console, ("", ""), log["facts"])
    for line in log["explained"]:
        console.print()
        say(console, f"line {line['line']}, {line['count']} times: {line['text']}", "dim")
        say(console, f"{line['effect']}: {line['means']}; {line['why']}", _STYLES[line["effect"]], indent=1)
    if log["unexplained"]:
        heading(console, "Warnings and errors that nothing is known about")
    for line in log["unexplained"]:
        say(console, f"line {line['line']}: {line['text']}")
