"""A repair for a terminal: the verdict, what was changed, what is kept and why, and the Pareto front."""

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

_MOST = 12


def print_repair(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of a repair."""
    print_head(console, model, [f"{model['model']}: {model['inputs']}"])
    for one in model["budgets"]:
        print_paragraph(console, f"budget: {one['metric']} {one['limit']} on {one['output']} ({one['reason']})")
    print_paragraph(
        console, f"error in units of the budget: {model['before']} with everything low, {model['after']} now"
    )
    plural = "" if model["evaluations"] == "1" else "s"
    told = f"{model['evaluations']} evaluation{plural} ({model['sensing']} of sensitivities), {model['time']}"
    print_paragraph(console, told, "dim")
    _print_changed_parts(console, model)


def _print_changed_parts(console: Console, model: Mapping[str, Any]) -> None:
    room = max(16, console.width // 2 - 4)
    if model["edits"]:
        print_heading(console, "Range repairs")
        for one in model["edits"]:
            print_paragraph(console, f"- {one['repair']}: {one['node']}: {one['note']}")
    if model["kept"]:
        print_heading(console, model["kept_title"])
        rows = [(shorten_name(one["node"], room), one["op_type"], one["reason"]) for one in model["kept"]]
        print_table(console, ("node", "", "why"), rows[:_MOST])
        print_rows_left(console, len(rows) - _MOST)
    if model["blocks"]:
        print_heading(console, "What stands in the way")
        for one in model["blocks"]:
            print_paragraph(console, f"- {one}")
    if len(model["front"]) > 1:
        print_heading(console, "Error against cost (take a row with --pick)")
        columns = ("", "error / budget", "modelled time", "FLOPs in FP32", "nodes", "Casts", "")
        keys = ("number", "excess", "time", "flops", "kept", "casts")
        points = [(*(one[key] for key in keys), "chosen" if one["chosen"] else "") for one in model["front"]]
        print_table(console, columns, points, right=(0, 1, 2, 3, 4, 5))
    print_not_examined(console, model["skipped"])
