"""What lint found for a terminal: causes with what to do, then what contributes, then information in one line each."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.report.lint.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]

_NARROWEST = 40
_STYLES = {"beyond": "bold red", "within": "bold green", "incomplete": "bold yellow"}


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns (commands are never wrapped), with ANSI colours if `color`."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=max(width, _NARROWEST),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # nothing of the caller's environment decides what a file holds
    )
    model = view(document)
    with console.capture() as captured:
        _say(console, f"{model['symbol']} {model['label']}", _STYLES[model["verdict"]])
        if not model["causes"]:
            _say(console, model["headline"], "bold")
        _say(console, f"{model['model']}: {model['about']}", "dim")
        _section(console, "Cause" if len(model["causes"]) < 2 else "Causes", model["causes"])
        _section(console, "Depends on data or converter", model["contributing"])
        if model["information"]:
            _heading(console, "Information")
        for finding in model["information"]:
            _say(console, f"{finding['code']}  {finding['claim']}")
        if model["skipped"]:
            _heading(console, "What was not examined")
        for item in model["skipped"]:
            _say(console, f"! {item['what']}: {item['reason']}")
            _say(console, f"fix: {item['fix']}", "dim", indent=1)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _section(console: Console, title: str, found: list[Mapping[str, Any]]) -> None:
    if found:
        _heading(console, title)
    for finding in found:
        _say(console, f"{finding['code']} {finding['title']}", "bold")
        _say(console, finding["claim"], indent=1)
        site = finding["site"]
        if site:
            _say(console, f"where: {site['node']} ({site['op_type']}), tensor {site['tensor']}", "dim", indent=1)
        for repair in finding["repairs"]:
            _say(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                console.print(f"    {line}", style="cyan", soft_wrap=True)


def _heading(console: Console, title: str) -> None:
    console.print()
    _say(console, title, "bold underline")


def _say(console: Console, text: str, style: str = "", *, indent: int = 0) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, 2 * indent)))
