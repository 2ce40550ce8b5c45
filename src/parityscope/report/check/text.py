"""What was checked for a terminal: a line a pair, then how many are what, and what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_paragraph, write_to_console
from parityscope.report.check.view import describe_summary, view_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["check_as_text", "pair_as_text", "summary_as_text"]


def check_as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text: a line a pair, which is as long as it is, and the summary."""
    lines = "".join(pair_as_text(one, color=color) for one in document["pairs"])
    return lines + summary_as_text(document, width=width, color=color)


def pair_as_text(pair: Mapping[str, Any], *, color: bool = False) -> str:
    """The line of one pair, never wrapped: it is there to be searched for."""
    return write_to_console(_print_pair, view_pair(pair), width=100, color=color)


def summary_as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """What stands below the lines of the pairs."""
    held = {
        "told": describe_summary(document),
        "counts": document["counts"],
        "updated": document["updated"],
        "unknown": sum(one["changes"] is None and one["study"] is not None for one in document["pairs"]),
    }
    return write_to_console(_print_summary, held, width=width, color=color)


def _print_pair(console: Console, view: Mapping[str, Any]) -> None:
    from rich.text import Text

    told = say_in_language(view["told"])
    line = Text.assemble(
        (f"{view['symbol']} {view['name']}", VERDICT_STYLES[view["css"]]), f"  {told}  ", (view["seconds"], "dim")
    )
    console.print(line, soft_wrap=True)


def _print_summary(console: Console, held: Mapping[str, Any]) -> None:
    print_paragraph(console, held["told"], "bold")
    if held["updated"]:
        return
    if held["unknown"]:
        print_paragraph(console, "parityscope check --update writes the baseline of what has none", "dim")
    elif held["counts"]["better"]:
        print_paragraph(console, "parityscope check --update keeps what became better", "dim")
