"""A forecast for a terminal: what is lost and why, then each format's outputs, layers, range and parameters."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.report.forecast.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

__all__ = ["as_text"]

_NARROWEST = 40
_MOST = 5


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
        _environ={},  # nothing of the caller's environment decides what a forecast says
    )
    model = view(document)
    with console.capture() as captured:
        _say(console, f"{model['symbol']} {model['label']}", "bold red" if model["lost"] else "bold green")
        _say(console, model["headline"], "bold")
        about = "" if model["profile"] == "none" else f", fusion as in {model['profile']}"
        _say(console, f"{model['model']}: simulated on {model['inputs']}{about}", "dim")
        for sentence in model["statements"]:
            _say(console, sentence)
        for each in model["formats"]:
            _format(console, each, model["headline"])
        if model["skipped"]:
            _heading(console, "What was not examined")
            for item in model["skipped"]:
                _say(console, f"- {item['what']}: {item['reason']}")
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _format(console: Console, found: Mapping[str, Any], headline: str) -> None:
    _heading(console, found["title"])
    for sentence in found["statements"]:
        if sentence != headline:
            _say(console, sentence)
    below = found["below"]
    if below["subnormal"] != "0":
        _say(
            console,
            f"{below['subnormal']} of {below['tensors']} tensors hold elements below the normal range, "
            f"{below['zero']} some that become zero.",
        )
    for columns, rows, right in _tables(found, max(16, console.width - 60)):
        _table(console, columns, rows[:_MOST], right=right)
    more = len(found["parameters"]) + found["more_parameters"] - _MOST
    if more > 0:
        _say(console, f"and {more:,} more", "dim")


def _tables(
    found: Mapping[str, Any], width: int
) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]], Sequence[int]]]:
    """The tables of a format as (columns, rows, columns of numbers); names are cut to `width`."""
    if len(found["outputs"]) > 1:
        columns = ("output", "relative L2", "largest error", "NaN, Inf", "")
        outputs = [(one["error"], one["max_abs"], one["nonfinite"], "lost" * one["lost"]) for one in found["outputs"]]
        names = [short(one["name"], width) for one in found["outputs"]]
        yield columns, [(name, *rest) for name, rest in zip(names, outputs, strict=True)], (1, 2, 3)
    if found["worst"]:
        keys = ("op_type", "introduced", "inherited", "total")
        yield ("adds most", "", *keys[1:]), _rows(found["worst"], "node", keys, width), (2, 3, 4)
    if found["near"]:
        rows = _rows(found["near"], "node", ("op_type", "largest", "margin"), width)
        yield ("nearest to overflow", "", "largest", "powers of two left"), rows, (2, 3)
    if found["parameters"]:
        rows = _rows(found["parameters"], "name", ("role", "overflowed", "flushed", "subnormal", "elements"), width)
        yield ("parameters that change", "", "overflow", "to zero", "subnormal", "of"), rows, (2, 3, 4, 5)


def _rows(items: Sequence[Mapping[str, str]], name: str, keys: Sequence[str], width: int) -> Sequence[Sequence[str]]:
    return [(short(item[name], width), *(item[key] for key in keys)) for item in items]


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
