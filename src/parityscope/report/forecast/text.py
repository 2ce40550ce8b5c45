"""A forecast for a terminal: what is lost and why, then each format's outputs, layers, range and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import (
    print_head,
    print_heading,
    print_not_examined,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report.words import shorten_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

_MOST = 5


def print_forecast(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of a forecast."""
    about = "" if model["profile"] == "none" else f", fusion as in {model['profile']}"
    print_head(console, model, [f"{model['model']}: simulated on {model['inputs']}{about}"])
    for sentence in model["statements"]:
        print_paragraph(console, sentence)
    for each in model["formats"]:
        _print_format(console, each, model["headline"])
    print_not_examined(console, model["skipped"])


def _print_format(console: Console, found: Mapping[str, Any], headline: str) -> None:
    print_heading(console, found["title"])
    for sentence in found["statements"]:
        if sentence != headline:
            print_paragraph(console, sentence)
    below = found["below"]
    if below["subnormal"] != "0":
        print_paragraph(
            console,
            f"{below['subnormal']} of {below['tensors']} tensors hold elements below the normal range, "
            f"{below['zero']} some that become zero.",
        )
    for columns, rows, right in _list_tables(found, max(16, console.width - 60)):
        print_table(console, columns, rows[:_MOST], right=right, apart=True)
    print_rows_left(console, len(found["parameters"]) + found["more_parameters"] - _MOST)


def _list_tables(
    found: Mapping[str, Any], width: int
) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]], Sequence[int]]]:
    """The tables of a format as (columns, rows, columns of numbers); names are cut to `width`."""
    if len(found["outputs"]) > 1:
        columns = ("output", "relative L2", "largest error", "NaN, Inf", "")
        outputs = [(one["error"], one["max_abs"], one["nonfinite"], "lost" * one["lost"]) for one in found["outputs"]]
        names = [shorten_name(one["name"], width) for one in found["outputs"]]
        yield columns, [(name, *rest) for name, rest in zip(names, outputs, strict=True)], (1, 2, 3)
    if found["worst"]:
        keys = ("op_type", "introduced", "inherited", "total")
        yield ("adds most", "", *keys[1:]), _table_rows(found["worst"], "node", keys, width), (2, 3, 4)
    if found["near"]:
        rows = _table_rows(found["near"], "node", ("op_type", "largest", "margin"), width)
        yield ("nearest to overflow", "", "largest", "powers of two left"), rows, (2, 3)
    if found["parameters"]:
        rows = _table_rows(
            found["parameters"], "name", ("role", "overflowed", "flushed", "subnormal", "elements"), width
        )
        yield ("parameters that change", "", "overflow", "to zero", "subnormal", "of"), rows, (2, 3, 4, 5)


def _table_rows(
    items: Sequence[Mapping[str, str]], name: str, keys: Sequence[str], width: int
) -> Sequence[Sequence[str]]:
    return [(shorten_name(item[name], width), *(item[key] for key in keys)) for item in items]
