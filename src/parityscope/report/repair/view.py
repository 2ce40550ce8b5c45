"""A repair's document -> plain data with every number already worded, which the page and the terminal lay out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings_in_words
from parityscope.report.listed import view_closing
from parityscope.report.words import as_number, clean, format_count, format_figure, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_LABELS = {
    "nothing": ("within", "✓", "Nothing needs a repair"),
    "certified": ("within", "✓", "Certified"),
    "unproved": ("incomplete", "?", "Not certified"),
    "infeasible": ("beyond", "✕", "No assignment meets the budget"),
}
_MICRO = 1e6


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


def view_repair(document: Mapping[str, Any]) -> dict[str, Any]:
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
