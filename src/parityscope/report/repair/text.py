"""A repair for a terminal: the verdict, what was changed, what is kept and why, and the Pareto front."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.report.repair.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

__all__ = ["as_text"]

_NARROWEST = 40
_MOST = 12
_STYLES = {"beyond": "bold red", "within": "bold green", "incomplete": "bold yellow"}


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`."""
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
        _environ={},  # nothing of the caller's environment decides what a repair says
    )
    model = view(document)
    with console.capture() as captured:
        _say(console, f"{model['symbol']} {model['label']}", _STYLES[model["verdict"]])
        _say(console, model["headline"], "bold")
        _say(console, f"{model['model']}: {model['inputs']}", "dim")
        for one in model["budgets"]:
            _say(console, f"budget: {one['metric']} {one['limit']} on {one['output']} ({one['reason']})")
        _say(console, f"error in units of the budget: {model['before']} with everything low, {model['after']} now")
        _say(
            console, f"{model['evaluations']} evaluations ({model['sensing']} of sensitivities), {model['time']}", "dim"
        )
        _parts(console, model)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _parts(console: Console, model: Mapping[str, Any]) -> None:
    room = max(16, console.width // 2 - 4)
    if model["edits"]:
        _heading(console, "Range repairs")
        for one in model["edits"]:
            _say(console, f"- {one['repair']}: {one['node']}: {one['note']}")
    if model["kept"]:
        _heading(console, "Kept in FP32")
        rows = [(short(one["node"], room), one["op_type"], one["reason"]) for one in model["kept"]]
        _table(console, ("node", "", "why"), rows[:_MOST], ())
        if len(rows) > _MOST:
            _say(console, f"and {len(rows) - _MOST:,} more", "dim")
    if model["blocks"]:
        _heading(console, "What stands in the way")
        for one in model["blocks"]:
            _say(console, f"- {one}")
    if len(model["front"]) > 1:
        _heading(console, "Error against cost (take a row with --pick)")
        columns = ("", "error / budget", "modelled time", "FLOPs in FP32", "nodes", "Casts", "")
        keys = ("number", "excess", "time", "flops", "kept", "casts")
        points = [(*(one[key] for key in keys), "chosen" if one["chosen"] else "") for one in model["front"]]
        _table(console, columns, points, (0, 1, 2, 3, 4, 5))
    if model["skipped"]:
        _heading(console, "What was not examined")
        for item in model["skipped"]:
            _say(console, f"- {item['what']}: {item['reason']}")


def _heading(console: Console, title: str) -> None:
    console.print()
    _say(console, title, "bold underline")


def _say(console: Console, text: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(text, style=style, overflow="fold"))


def _table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
