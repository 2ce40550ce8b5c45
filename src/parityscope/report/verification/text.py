"""A verification for a terminal: the verdict and its reasons, then numbers, budgets, latency and what got worse."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.report.verification.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

__all__ = ["as_text"]

_NARROWEST = 40
_MOST = 10
_STYLES = {"within": "bold green", "incomplete": "bold yellow", "beyond": "bold red"}


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
        _environ={},  # nothing of the caller's environment decides what a verification says
    )
    model = view(document)
    with console.capture() as captured:
        _head(console, model)
        _numbers(console, model)
        _budgets(console, model)
        _latency(console, model)
        _regressions(console, model)
        if model["skipped"]:
            _heading(console, "What was not examined")
            for item in model["skipped"]:
                _say(console, f"- {item['what']}: {item['reason']}")
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _head(console: Console, model: Mapping[str, Any]) -> None:
    _say(console, f"{model['symbol']} {model['label']}", _STYLES[model["css"]])
    _say(console, model["headline"], "bold")
    for sentence in model["because"]:
        _say(console, sentence)
    _say(console, f"{model['model']}: {model['inputs']}", "dim")
    rows = [(side["name"], side["target"], side["executed"], side["size"], side["spread"]) for side in model["sides"]]
    _table(console, ("", "target", "executed", "model", "own spread"), rows, right=(3, 4))


def _numbers(console: Console, model: Mapping[str, Any]) -> None:
    _heading(console, "Before and after")
    rows = [
        (short(one["title"], 48), one["before"], one["after"], one["interval"], one["outcome"])
        for one in model["quantities"]
    ]
    _table(console, ("", "before", "after", "difference", ""), rows, right=(1, 2))
    for one in model["quantities"]:
        counts = f"{one['improved']} better, {one['equal']} equal, {one['worsened']} worse"
        _say(console, f"{one['title']}: samples {counts}; {one['method']}", "dim")
        if one["decisions"]:
            _say(console, f"{one['title']}: {one['decisions']}", "dim")


def _budgets(console: Console, model: Mapping[str, Any]) -> None:
    if model["budgets"]:
        _heading(console, "Budgets")
        keys = ("output", "metric", "limit", "after", "misses", "bound", "verdict")
        rows = [tuple(one[key] for key in keys) for one in model["budgets"]]
        _table(console, ("output", "metric", "limit", "after", "missed", "shown for", ""), rows, right=(2, 3, 4))


def _latency(console: Console, model: Mapping[str, Any]) -> None:
    latency = model["latency"]
    if latency is None:
        return
    _heading(console, "Latency")
    rows = [(row["name"], row["median"], row["mad"], row["p95"]) for row in latency["rows"]]
    _table(console, ("", "median", "median deviation", "95th percentile"), rows, right=(1, 2, 3))
    _say(
        console,
        f"before / after: {latency['speedup']}, {latency['rounds']} rounds each in turns, after a warm-up",
        "dim",
    )


def _regressions(console: Console, model: Mapping[str, Any]) -> None:
    if model["regressions"]:
        _heading(console, "Samples that got worse")
        rows = [(short(row[0], 40), *row[1:]) for row in model["regressions"][:_MOST]]
        _table(console, ("sample", "in", "before", "after"), rows, right=(2, 3))
        more = len(model["regressions"]) + model["more_regressions"] - _MOST
        if more > 0:
            _say(console, f"and {more:,} more", "dim")


def _heading(console: Console, title: str) -> None:
    console.print()
    _say(console, title, "bold underline")


def _say(console: Console, text: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(text, style=style, overflow="fold"))


def _table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print()
    console.print(table)
