"""The outcome of a repair -> text | json | html.

`repair_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.checks.generated_inputs import findings_about
from parityscope.report._console import (
    print_head,
    print_heading,
    print_not_examined,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report._findings import findings_in_words
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import view_closing
from parityscope.report.svg import (
    Frame,
    line_path,
    linear_scale,
    list_ticks,
    point_path,
    svg_element,
    svg_figure,
    svg_text,
)
from parityscope.report.words import (
    as_number,
    clean,
    format_count,
    format_figure,
    format_percent,
    format_seconds,
    shorten_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from parityscope.repairs.search import RepairOutcome, RepairTask

_SCHEMA = "parityscope-repair/1"
_LABELS = {
    "nothing": ("within", "✓", "Nothing needs a repair"),
    "certified": ("within", "✓", "Certified"),
    "unproved": ("incomplete", "?", "Not certified"),
    "infeasible": ("beyond", "✕", "No assignment meets the budget"),
}
_MICRO = 1e6
_MOST = 12
_SIZE = (900.0, 340.0)
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 24.0, 16.0, 48.0
_FRAME = Frame(width=_SIZE[0], height=_SIZE[1], left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)


def repair_document(
    outcome: RepairOutcome, task: RepairTask, *, command: str = "", output: Path | None = None
) -> dict[str, Any]:
    """Everything that a repair says, as plain data. `output` is the file that was written, None for none.

    Errors are in units of the budget (above 1 misses it), modelled times in seconds, shares in [0, 1].
    """
    model, inputs = task.model, task.inputs
    return plain_items(
        {
            **document_head(command, schema=_SCHEMA),
            "verdict": outcome.verdict,
            "statement": outcome.statement,
            "model": {"name": model.named.stem, "path": str(model.named), "sha256": model.sha256, "nodes": model.nodes},
            "inputs": {"origin": inputs.origin, "samples": len(inputs), "generated": inputs.generated},
            "output": "" if output is None else str(output),
            "low": outcome.low,
            "typed": outcome.typed,
            "margin": outcome.margin,
            "all_low": None if math.isnan(outcome.all_low) else outcome.all_low,
            "budgets": task.policy.budgets,
            "findings": list(findings_about(inputs)),
            "deciding_nodes": outcome.nodes,
            "flags": outcome.flags,
            "edits": outcome.edits,
            "kept": outcome.kept,
            "chosen": outcome.chosen,
            "front": outcome.front,
            "trail": outcome.trail,
            "certificate": outcome.certificate,
            "search_samples": outcome.search_samples,
            "held_out": outcome.held_out,
            "evaluations": outcome.evaluations,
            "sensing": outcome.sensing,
            "casts": outcome.casts_written,
            "blocks": outcome.blocks,
            "skipped": (*inputs.not_judged, *outcome.skipped),
            "seconds": outcome.seconds,
        }
    )


def has_succeeded(document: Mapping[str, Any]) -> bool:
    """Whether every budget is kept on every sample tried, though too few of them were held out to certify more than that."""
    chosen, certificate = document["chosen"], document["certificate"]
    if (
        document["verdict"] != "unproved"
        or certificate is None
        or certificate["failures"]
        or not _count_tried(document)
    ):
        return False
    error = 0.0 if chosen is None else as_number(chosen["excess"])
    return error is not None and error <= 1


def _view_repair(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    verdict, symbol, label = _LABELS[document["verdict"]]
    if has_succeeded(document):
        tried = _count_tried(document)
        each = "the one sample" if tried == 1 else f"all {format_count(tried)} samples"
        verdict, symbol, label = "within", "✓", f"Within budget on {each} tried"
    chosen = document["chosen"]
    return {
        "verdict": verdict,
        "symbol": symbol,
        "label": label,
        "headline": clean(document["statement"]),
        "model": clean(document["model"]["name"]),
        "inputs": _describe_inputs(document),
        "findings": findings_in_words(document),
        "low": document["low"],
        "output": clean(document["output"]),
        "before": format_figure(document["all_low"]),
        "after": format_figure(None if chosen is None else chosen["excess"]),
        "kept_count": f"{len(document['kept'])} of {document['deciding_nodes']}",
        "flops": format_percent(None if chosen is None else chosen["flops"]),
        "casts": format_count(document["casts"]),
        "evaluations": format_count(document["evaluations"]),
        "sensing": format_count(document["sensing"]),
        "time": format_seconds(document["seconds"].get("total")),
        "budgets": [_view_budget(one) for one in document["budgets"]],
        "edits": [{key: clean(one[key]) for key in ("repair", "node", "note")} for one in document["edits"]],
        "flags": [{key: clean(one[key]) for key in ("node", "op_type", "blame", "text")} for one in document["flags"]],
        "kept_title": "Kept in FP32" if document["low"] in {"f16", "bf16"} else "Kept from the lowest format",
        "kept": [_view_kept_node(one) for one in document["kept"]],
        "front": [_view_point(place, one, document) for place, one in enumerate(document["front"], 1)],
        "blocks": [clean(one) for one in document["blocks"]],
        "certificate": _view_certificate(document["certificate"]),
        **view_closing(document),
    }


def _count_tried(document: Mapping[str, Any]) -> int:
    """The samples that the written model ran on: those of the search too, but for a plan, which was found elsewhere."""
    return len(document["held_out"]) + (0 if document["chosen"] is None else len(document["search_samples"]))


def _describe_inputs(document: Mapping[str, Any]) -> str:
    inputs = document["inputs"]
    made = "generated " if inputs["generated"] else ""
    return (
        f"searched on {len(document['search_samples'])} and held out {len(document['held_out'])} of "
        f"{inputs['samples']} {made}samples ({clean(inputs['origin'])})"
    )


def _view_budget(budget: Mapping[str, Any]) -> dict[str, str]:
    return {
        "output": clean(budget["output"]) or "every output",
        "metric": clean(budget["metric"]),
        "limit": format_figure(budget["limit"]),
        "reason": clean(budget["reason"]),
    }


def _view_kept_node(kept: Mapping[str, Any]) -> dict[str, str]:
    return {key: clean(kept[key]) for key in ("node", "op_type", "reason")}


def _view_point(place: int, point: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    chosen = document["chosen"]
    excess = as_number(point["excess"])
    return {
        "number": str(place),
        "step": clean(point["step"]),
        "kept": format_count(len(point["kept"])),
        "excess": format_figure(excess),
        "time": f"{format_figure((as_number(point['seconds']) or 0.0) * _MICRO)} µs",
        "flops": format_percent(point["flops"]),
        "casts": format_count(point["casts"]),
        "meets": excess is not None and excess <= 1,
        # With a third label two points may keep the same nodes.
        "chosen": chosen is not None and all(chosen[key] == point[key] for key in ("kept", "seconds")),
    }


def _view_certificate(held: Mapping[str, Any] | None) -> dict[str, str] | None:
    if held is None:
        return None
    return {
        "statement": clean(held["statement"]),
        "samples": format_count(len(held["excess"])),
        "failures": format_count(held["failures"]),
        "worst": format_figure(held["worst"]),
        "p95": format_figure(held["p95"]),
        "draws": format_count(held["draws"]),
        "attempts": format_count(held["attempts"]),
    }


def _print_repair(console: Console, model: Mapping[str, Any]) -> None:
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


def _draw_repair(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The drawing of a repair."""
    return {"front": _draw_front(document)}


def _draw_front(document: Mapping[str, Any]) -> str:
    """The drawing; empty where there are fewer than two points to show."""
    trail = _drawable_points(document["trail"])
    if len({time for time, _ in trail}) < 2:
        return ""
    front = _drawable_points(document["front"])
    times = [time for time, _ in trail]
    logs = [math.log10(error) for _, error in trail] + [0.0]
    x = linear_scale(min(times), max(times), _LEFT + 12, _SIZE[0] - _RIGHT - 12)
    low, high = math.floor(min(logs)), math.ceil(max(logs) + 1e-9)
    y = linear_scale(low, high, _SIZE[1] - _BOTTOM, _TOP)
    places = [(x(time), y(math.log10(error))) for time, error in front]
    body = [
        *_FRAME.levels(low, high, y),
        *_FRAME.base(
            ((x(value), f"{value:g}") for value in list_ticks(min(times), max(times), most=8)),
            "modelled time of one inference, microseconds",
        ),
        svg_element(
            "path", {"d": line_path([(_LEFT, y(0)), (_SIZE[0] - _RIGHT, y(0))]), "class": "edge-of limit-line"}
        ),
        svg_text(_SIZE[0] - _RIGHT, y(0) - 5, "the budget", "small", anchor="end"),
        svg_element("path", {"d": point_path((x(t), y(math.log10(e))) for t, e in trail), "class": "dots tried"}),
        svg_element("path", {"d": line_path(places), "class": "line front"}),
        *(svg_text(px + 7, py - 7, str(place), "small strong") for place, (px, py) in enumerate(places, 1)),
        *_draw_chosen(document["chosen"], x, y),
    ]
    return svg_figure(
        "front",
        _SIZE,
        "Error against modelled time",
        f"{len(trail)} assignments; the {len(front)} that no other beats are joined and numbered",
        body,
    )


def _drawable_points(held: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(microseconds, error in units of the budget) of those that can stand on a logarithmic axis."""
    found = [((as_number(one["seconds"]) or 0.0) * _MICRO, as_number(one["excess"]) or 0.0) for one in held]
    return [(time, error) for time, error in found if math.isfinite(error) and error > 0]


def _draw_chosen(chosen: Mapping[str, Any] | None, x: Any, y: Any) -> list[str]:
    points = _drawable_points([chosen]) if chosen is not None else []
    return [
        svg_element("circle", {"cx": x(time), "cy": y(math.log10(error)), "r": 8, "class": "chosen"})
        for time, error in points
    ]


FORMS = Forms(
    title="a repair",
    view=_view_repair,
    show=_print_repair,
    page=Page(
        template=TEMPLATES / "repair.html.j2",
        styles=(TEMPLATES / "repair.css",),
        draw=_draw_repair,
    ),
)
render = FORMS.render
