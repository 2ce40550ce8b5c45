"""What lint found for a terminal: causes with what to do, then what contributes, then information in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, command_line, heading, say, written
from parityscope.report.lint.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns (commands are never wrapped), with ANSI colours if `color`."""
    return written(_draw, view(document), width=width, color=color)


def _draw(console: Console, model: Mapping[str, Any]) -> None:
    say(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    if not model["causes"]:
        say(console, model["headline"], "bold")
    say(console, f"{model['model']}: {model['about']}", "dim")
    _section(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
    _section(console, "Depends on data or converter", model["contributing"])
    if model["information"]:
        heading(console, "Information")
    for finding in model["information"]:
        say(console, f"{finding['code']}  {finding['claim']}")
    if model["skipped"]:
        heading(console, "What was not examined")
    for item in model["skipped"]:
        say(console, f"! {item['what']}: {item['reason']}")
        say(console, f"fix: {item['fix']}", "dim", indent=1)


def _section(console: Console, title: str, found: list[Mapping[str, Any]]) -> None:
    if found:
        heading(console, title)
    for finding in found:
        say(console, f"{finding['code']} {finding['title']}", "bold")
        say(console, finding["claim"], indent=1)
        site = finding["site"]
        if site:
            say(console, f"where: {site['node']} ({site['op_type']}), tensor {site['tensor']}", "dim", indent=1)
        for repair in finding["repairs"]:
            say(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)
