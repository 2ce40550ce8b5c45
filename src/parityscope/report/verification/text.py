"""A verification for a terminal: the verdict and its reasons, then numbers, budgets, latency and what got worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, heading, more, not_examined, say, table, written
from parityscope.report.verification.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]

_MOST = 10


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`."""
    return written(_draw, view(document), width=width, color=color)


def _draw(console: Console, model: Mapping[str, Any]) -> None:
    _head(console, model)
    _numbers(console, model)
    _budgets(console, model)
    _latency(console, model)
    _regressions(console, model)
    not_examined(console, model["skipped"])


def _head(console: Console, model: Mapping[str, Any]) -> None:
    say(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["css"]])
    say(console, model["headline"], "bold")
    for sentence in model["because"]:
        say(console, sentence)
    say(console, f"{model['model']}: {model['inputs']}", "dim")
    for told in model["findings"]:
        say(console, told, "yellow")
    rows = [(side["name"], side["target"], side["executed"], side["size"], side["spread"]) for side in model["sides"]]
    table(console, ("", "target", "executed", "model", "own spread"), rows, right=(3, 4), apart=True)


def _numbers(console: Console, model: Mapping[str, Any]) -> None:
    heading(console, "Before and after")
    rows = [
        (short(one["title"], 48), one["before"], one["after"], one["interval"], one["outcome"])
        for one in model["quantities"]
    ]
    table(console, ("", "before", "after", "difference", ""), rows, right=(1, 2), apart=True)
    for one in model["quantities"]:
        counts = f"{one['improved']} better, {one['equal']} equal, {one['worsened']} worse"
        say(console, f"{one['title']}: samples {counts}; {one['method']}", "dim")
        if one["decisions"]:
            say(console, f"{one['title']}: {one['decisions']}", "dim")


def _budgets(console: Console, model: Mapping[str, Any]) -> None:
    if model["budgets"]:
        heading(console, "Budgets")
        keys = ("output", "metric", "limit", "after", "misses", "bound", "verdict")
        rows = [tuple(one[key] for key in keys) for one in model["budgets"]]
        table(
            console,
            ("output", "metric", "limit", "after", "missed", "shown for", ""),
            rows,
            right=(2, 3, 4),
            apart=True,
        )


def _latency(console: Console, model: Mapping[str, Any]) -> None:
    latency = model["latency"]
    if latency is None:
        return
    heading(console, "Latency")
    rows = [(row["name"], row["median"], row["mad"], row["p95"]) for row in latency["rows"]]
    table(console, ("", "median", "median deviation", "95th percentile"), rows, right=(1, 2, 3), apart=True)
    say(
        console,
        f"before / after: {latency['speedup']}, {latency['rounds']} rounds each in turns, after a warm-up",
        "dim",
    )


def _regressions(console: Console, model: Mapping[str, Any]) -> None:
    if model["regressions"]:
        heading(console, "Samples that got worse")
        rows = [(short(row[0], 40), *row[1:]) for row in model["regressions"][:_MOST]]
        table(console, ("sample", "in", "before", "after"), rows, right=(2, 3), apart=True)
        more(console, len(model["regressions"]) + model["more_regressions"] - _MOST)
