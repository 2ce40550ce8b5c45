"""A repair for a terminal: the verdict, what was changed, what is kept and why, and the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import VERDICT_STYLES, heading, more, not_examined, say, table, written
from parityscope.report.repair.view import view
from parityscope.report.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["as_text"]

_MOST = 12


def as_text(document: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """`document` as text of at most `width` columns, with ANSI colours if `color`."""
    return written(_draw, view(document), width=width, color=color)


def _draw(console: Console, model: Mapping[str, Any]) -> None:
    say(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    say(console, model["headline"], "bold")
    say(console, f"{model['model']}: {model['inputs']}", "dim")
    for told in model["findings"]:
        say(console, told, "yellow")
    for one in model["budgets"]:
        say(console, f"budget: {one['metric']} {one['limit']} on {one['output']} ({one['reason']})")
    say(console, f"error in units of the budget: {model['before']} with everything low, {model['after']} now")
    plural = "" if model["evaluations"] == "1" else "s"
    told = f"{model['evaluations']} evaluation{plural} ({model['sensing']} of sensitivities), {model['time']}"
    say(console, told, "dim")
    _parts(console, model)


def _parts(console: Console, model: Mapping[str, Any]) -> None:
    room = max(16, console.width // 2 - 4)
    if model["edits"]:
        heading(console, "Range repairs")
        for one in model["edits"]:
            say(console, f"- {one['repair']}: {one['node']}: {one['note']}")
    if model["kept"]:
        heading(console, model["kept_title"])
        rows = [(short(one["node"], room), one["op_type"], one["reason"]) for one in model["kept"]]
        table(console, ("node", "", "why"), rows[:_MOST])
        more(console, len(rows) - _MOST)
    if model["blocks"]:
        heading(console, "What stands in the way")
        for one in model["blocks"]:
            say(console, f"- {one}")
    if len(model["front"]) > 1:
        heading(console, "Error against cost (take a row with --pick)")
        columns = ("", "error / budget", "modelled time", "FLOPs in FP32", "nodes", "Casts", "")
        keys = ("number", "excess", "time", "flops", "kept", "casts")
        points = [(*(one[key] for key in keys), "chosen" if one["chosen"] else "") for one in model["front"]]
        table(console, columns, points, right=(0, 1, 2, 3, 4, 5))
    not_examined(console, model["skipped"])
