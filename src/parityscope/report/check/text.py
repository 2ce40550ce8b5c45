"""What was checked for a terminal: a line a pair, then how many are what, and what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_paragraph, write_to_console
from parityscope.report.check.view import view_check, view_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def pair_as_text(pair: Mapping[str, Any], *, color: bool = False) -> str:
    """The line of one pair."""
    return write_to_console(print_pair, view_pair(pair), width=100, color=color)


def summary_as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """What stands below the lines of the pairs."""
    return write_to_console(_print_summary, view_check(document), width=width, color=color)


def print_check(console: Console, model: Mapping[str, Any]) -> None:
    """Writes a line a pair, and the summary."""
    for pair in model["pairs"]:
        print_pair(console, pair)
    _print_summary(console, model)


def print_pair(console: Console, view: Mapping[str, Any]) -> None:
    """Never wrapped: the line is there to be searched for."""
    from rich.text import Text

    told = say_in_language(view["told"])
    line = Text.assemble(
        (f"{view['symbol']} {view['name']}", VERDICT_STYLES[view["css"]]), f"  {told}  ", (view["seconds"], "dim")
    )
    console.print(line, soft_wrap=True)


def _print_summary(console: Console, model: Mapping[str, Any]) -> None:
    print_paragraph(console, model["title"], "bold")
    if model["updated"]:
        return
    if model["unknown"]:
        print_paragraph(console, "parityscope check --update writes the baseline of what has none", "dim")
    elif model["better"]:
        print_paragraph(console, "parityscope check --update keeps what became better", "dim")
