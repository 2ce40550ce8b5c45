"""A verification for a terminal: the verdict and its reasons, then numbers, budgets, latency and what got worse."""

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
    from collections.abc import Mapping

    from rich.console import Console

_MOST = 10


def print_verification(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of a verification."""
    _print_sides(console, model)
    _print_numbers(console, model)
    _print_budgets(console, model)
    _print_latency(console, model)
    _print_regressions(console, model)
    print_not_examined(console, model["skipped"])


def _print_sides(console: Console, model: Mapping[str, Any]) -> None:
    print_head(console, model, [f"{model['model']}: {model['inputs']}"])
    rows = [(side["name"], side["target"], side["executed"], side["size"], side["spread"]) for side in model["sides"]]
    print_table(console, ("", "target", "executed", "model", "own spread"), rows, right=(3, 4), apart=True)


def _print_numbers(console: Console, model: Mapping[str, Any]) -> None:
    print_heading(console, "Before and after")
    rows = [
        (shorten_name(one["title"], 48), one["before"], one["after"], one["interval"], one["outcome"])
        for one in model["quantities"]
    ]
    print_table(console, ("", "before", "after", "difference", ""), rows, right=(1, 2), apart=True)
    for one in model["quantities"]:
        counts = f"{one['improved']} better, {one['equal']} equal, {one['worsened']} worse"
        print_paragraph(console, f"{one['title']}: samples {counts}; {one['method']}", "dim")
        if one["decisions"]:
            print_paragraph(console, f"{one['title']}: {one['decisions']}", "dim")


def _print_budgets(console: Console, model: Mapping[str, Any]) -> None:
    if model["budgets"]:
        print_heading(console, "Budgets")
        keys = ("output", "metric", "limit", "after", "misses", "bound", "verdict")
        rows = [tuple(one[key] for key in keys) for one in model["budgets"]]
        print_table(
            console,
            ("output", "metric", "limit", "after", "missed", "shown for", ""),
            rows,
            right=(2, 3, 4),
            apart=True,
        )


def _print_latency(console: Console, model: Mapping[str, Any]) -> None:
    latency = model["latency"]
    if latency is None:
        return
    print_heading(console, "Latency")
    rows = [(row["name"], row["median"], row["mad"], row["p95"]) for row in latency["rows"]]
    print_table(console, ("", "median", "median deviation", "95th percentile"), rows, right=(1, 2, 3), apart=True)
    print_paragraph(
        console,
        f"before / after: {latency['speedup']}, {latency['rounds']} rounds each in turns, after a warm-up",
        "dim",
    )


def _print_regressions(console: Console, model: Mapping[str, Any]) -> None:
    if model["regressions"]:
        print_heading(console, "Samples that got worse")
        rows = [(shorten_name(row[0], 40), *row[1:]) for row in model["regressions"][:_MOST]]
        print_table(console, ("sample", "in", "before", "after"), rows, right=(2, 3), apart=True)
        print_rows_left(console, len(model["regressions"]) + model["more_regressions"] - _MOST)
