"""A verification's document -> plain data with every number already worded, which the page and the terminal lay out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings_in_words
from parityscope.report.listed import describe_samples, view_closing
from parityscope.report.verification.succeeding import describe_missing_samples, has_succeeded
from parityscope.report.words import ABSENT, as_number, clean, format_bytes, format_count, format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROWS = 20  # regressions that are shown; the JSON holds all
_LABELS = {
    "improved": ("within", "✓", "Improved: the repair holds"),
    "within": ("within", "✓", "Within budget"),
    "not proved": ("incomplete", "?", "Not proved"),
    "worse": ("beyond", "✕", "Worse: the repair is refuted"),
    "beyond": ("beyond", "✕", "Beyond budget: the repair is refuted"),
}
_OUTCOMES = {
    "improved": ("within", "better"),
    "same": ("within", "the same"),
    "not proved": ("incomplete", "not proved"),
    "worse": ("beyond", "worse"),
    "within": ("within", "kept"),
    "beyond": ("beyond", "missed"),
}


def view_verification(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    css, symbol, label = _LABELS[document["verdict"]]
    samples = document["inputs"]["samples"]
    because = [_make_sentence(one) for one in document["because"]]
    succeeded = has_succeeded(document)
    if succeeded:
        css, symbol = "within", "✓"
        label = f"{_success_title(document)} on {format_count(len(samples))} of {format_count(len(samples))} samples"
        because = [_make_sentence("; ".join(_describe_changes(document)[:3])), describe_missing_samples(document)]
    return {
        "verdict": css,
        "symbol": symbol,
        "label": label,
        "headline": because[0] if because else label,
        "because": because[1:],
        "needed": format_count(document["needed"]) if document["needed"] and not succeeded else "",
        "model": clean(document["model"]["name"]),
        "inputs": describe_samples(len(samples), document["inputs"]),
        "findings": findings_in_words(document),
        "samples": format_count(len(samples)),
        "sides": [_view_side(document[name], name) for name in ("reference", "before", "after")],
        "quantities": [_view_quantity(one, succeeded=succeeded) for one in document["quantities"]],
        "budgets": [_view_budget(one, succeeded=succeeded) for one in document["budgets"]],
        "outputs": [_view_output(one) for one in document["outputs"]],
        "latency": _view_latency(document["latency"]) if document["latency"] else None,
        "regressions": [_regression_row(one) for one in document["regressions"][:ROWS]],
        "more_regressions": max(0, len(document["regressions"]) - ROWS),
        "seed": document["seed"],
        **view_closing(document),
        "schema": f"{document['schema']}, kind {document['kind']}",
    }


def _success_title(document: Mapping[str, Any]) -> str:
    return "Within budget" if document["budgets"] else "Better"


def _describe_changes(document: Mapping[str, Any]) -> list[str]:
    """What became of each number, those of the task first: "top-1 0 -> 1.00"."""
    ordered = sorted(document["quantities"], key=lambda one: one["kind"] != "task")
    return [_describe_change(one) for one in ordered]


def _describe_change(one: Mapping[str, Any]) -> str:
    what = f"the error of {clean(one['name'])}" if one["kind"] == "output" else clean(one["title"])
    return f"{what} {format_figure(one['before'])} \N{RIGHTWARDS ARROW} {format_figure(one['after'])}"


def _make_sentence(text: str) -> str:
    plain = clean(text)
    return plain[:1].upper() + plain[1:] + "."


def _view_side(side: Mapping[str, Any], name: str) -> dict[str, str]:
    spread = as_number(side["spread"])
    return {
        "name": name,
        "target": clean(side["target"]),
        "executed": clean(side["executed"] or ABSENT),
        "size": format_bytes(side["nbytes"]),
        "nodes": format_count(side["nodes"]),
        "spread": "none" if spread == 0.0 else format_figure(spread),
        "environment": ", ".join(f"{clean(key)} {clean(value)}" for key, value in side["environment"].items()),
    }


def _view_quantity(one: Mapping[str, Any], *, succeeded: bool) -> dict[str, Any]:
    css, outcome = _OUTCOMES[one["outcome"]]
    if succeeded and one["outcome"] == "not proved" and one["improved"] and not one["worsened"]:
        css, outcome = "within", "better on every sample tried" if not one["equal"] else "better, on no sample worse"
    interval = ABSENT if one["method"] == "none" else f"{format_figure(one['low'])} to {format_figure(one['high'])}"
    return {
        "name": clean(one["name"]),
        "title": clean(one["title"]) + (f", {clean(one['name'])}" if one["kind"] == "output" else ""),
        "against": clean(one["against"]),
        "better": clean(one["better"]),
        "before": format_figure(one["before"]),
        "after": format_figure(one["after"]),
        "difference": format_figure(one["difference"]),
        "interval": interval,
        "method": _describe_method(one),
        "improved": format_count(one["improved"]),
        "equal": format_count(one["equal"]),
        "worsened": format_count(one["worsened"]),
        "p_value": format_figure(one["p_value"]),
        "css": css,
        "outcome": outcome,
        "needed": format_count(one["needed"]) if one["needed"] else "",
        "decisions": _describe_decisions(one["decisions"]),
    }


def _describe_method(one: Mapping[str, Any]) -> str:
    if one["method"] == "none":
        return "too few samples for an interval"
    name = {"bca": "BCa", "percentile": "percentile"}[one["method"]]
    return f"{format_percent(one['confidence'])} {name} interval of {format_count(one['resamples'])} draws"


def _describe_decisions(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    return (
        f"right on both sides {format_count(one['both'])}, only before {format_count(one['only_before'])}, "
        f"only after {format_count(one['only_after'])}, on neither {format_count(one['neither'])}; McNemar's exact p "
        f"= {format_figure(one['p_value'])}"
    )


def _view_budget(one: Mapping[str, Any], *, succeeded: bool) -> dict[str, str]:
    css, verdict = _OUTCOMES[one["verdict"]]
    if succeeded and one["verdict"] == "not proved":
        css, verdict = "within", "kept on every sample tried"
    budget = one["budget"]
    tolerance = budget["tolerance"]
    limit = (
        format_figure(budget["limit"])
        if tolerance is None
        else f"atol {tolerance['atol']:g} + rtol {tolerance['rtol']:g}"
    )
    return {
        "output": clean(one["output"]),
        "metric": clean(budget["metric"]),
        "limit": limit,
        "reason": clean(budget["reason"]),
        "before": format_figure(one["before"]),
        "after": format_figure(one["after"]),
        "misses": f"{format_count(one['misses'])} of {format_count(one['samples'])}",
        "bound": f"{format_percent(one['bound'])} of samples, with {format_percent(one['confidence'])} confidence",
        "needed": "" if one["verdict"] == "within" else format_count(one["needed"]),
        "css": css,
        "verdict": verdict,
    }


def _view_output(one: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in one["before"] if name in one["after"]]
    return {
        "name": clean(one["output"]),
        "dtype": clean(one["dtype"]),
        "nonfinite": (format_count(one["nonfinite_before"]), format_count(one["nonfinite_after"])),
        "metrics": [
            (clean(name), format_figure(one["before"][name]), format_figure(one["after"][name])) for name in names
        ],
        "decisions": _describe_decisions(one["decisions"]),
    }


def _view_latency(latency: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "name": name,
                "median": _format_milliseconds(latency[name]["median"]),
                "mad": _format_milliseconds(latency[name]["mad"]),
                "p95": _format_milliseconds(latency[name]["p95"]),
            }
            for name in ("before", "after")
        ],
        "rounds": format_count(latency["rounds"]),
        "warm_up": format_count(latency["warm_up"]),
        "speedup": f"{format_figure(latency['speedup'])} ({format_figure(latency['low'])} to {format_figure(latency['high'])})",
    }


def _format_milliseconds(seconds: object) -> str:
    value = as_number(seconds)
    return ABSENT if value is None else f"{format_figure(value * 1000)} ms"


def _regression_row(one: Mapping[str, Any]) -> Sequence[str]:
    return clean(one["sample"]), clean(one["quantity"]), format_figure(one["before"]), format_figure(one["after"])
