"""A verification's document -> plain data with every number already worded, which the page and the terminal lay out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings_in_words
from parityscope.report.verification.succeeding import certificate, succeeded
from parityscope.report.words import ABSENT, clean, count, figure, nbytes, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROWS", "view"]

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


def view(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    css, symbol, label = _LABELS[document["verdict"]]
    samples = document["inputs"]["samples"]
    because = [_sentence(one) for one in document["because"]]
    if succeeded(document):
        css, symbol = "within", "✓"
        label = f"{_success(document)} on {count(len(samples))} of {count(len(samples))} samples"
        because = [_sentence("; ".join(_changes(document)[:3])), certificate(document)]
    return {
        "css": css,
        "symbol": symbol,
        "label": label,
        "headline": because[0] if because else label,
        "because": because[1:],
        "needed": count(document["needed"]) if document["needed"] and not succeeded(document) else "",
        "model": clean(document["model"]["name"]),
        "inputs": _inputs(document["inputs"]),
        "findings": findings_in_words(document),
        "samples": count(len(samples)),
        "sides": [_side(document[name], name) for name in ("reference", "before", "after")],
        "quantities": [_quantity(one) for one in document["quantities"]],
        "budgets": [_budget(one) for one in document["budgets"]],
        "outputs": [_output(one) for one in document["outputs"]],
        "latency": _latency(document["latency"]) if document["latency"] else None,
        "regressions": [_regression(one) for one in document["regressions"][:ROWS]],
        "more_regressions": max(0, len(document["regressions"]) - ROWS),
        "skipped": [{key: clean(one[key]) for key in ("what", "reason", "fix")} for one in document["skipped"]],
        "seed": document["seed"],
        "command": clean(document["command"]),
        "tool": f"{document['tool']['name']} {document['tool']['version']}",
        "schema": f"{document['schema']}, kind {document['kind']}",
    }


def _success(document: Mapping[str, Any]) -> str:
    return "Within budget" if document["budgets"] else "Better"


def _changes(document: Mapping[str, Any]) -> list[str]:
    """What became of each number, those of the task first: "top-1 0 -> 1.00"."""
    ordered = sorted(document["quantities"], key=lambda one: one["kind"] != "task")
    return [_changed(one) for one in ordered]


def _changed(one: Mapping[str, Any]) -> str:
    what = f"the error of {clean(one['name'])}" if one["kind"] == "output" else clean(one["title"])
    return f"{what} {figure(one['before'])} \N{RIGHTWARDS ARROW} {figure(one['after'])}"


def _sentence(text: str) -> str:
    plain = clean(text)
    return plain[:1].upper() + plain[1:] + "."


def _inputs(inputs: Mapping[str, Any]) -> str:
    total = len(inputs["samples"])
    made = "generated " if inputs["generated"] else ""
    return f"{count(total)} {made}sample{'' if total == 1 else 's'} ({clean(inputs['origin'])})"


def _side(side: Mapping[str, Any], name: str) -> dict[str, str]:
    spread = number(side["spread"])
    return {
        "name": name,
        "target": clean(side["target"]),
        "executed": clean(side["executed"] or ABSENT),
        "size": nbytes(side["nbytes"]),
        "nodes": count(side["nodes"]),
        "spread": "none" if spread == 0.0 else figure(spread),
        "environment": ", ".join(f"{clean(key)} {clean(value)}" for key, value in side["environment"].items()),
    }


def _quantity(one: Mapping[str, Any]) -> dict[str, Any]:
    css, outcome = _OUTCOMES[one["outcome"]]
    interval = ABSENT if one["method"] == "none" else f"{figure(one['low'])} to {figure(one['high'])}"
    return {
        "name": clean(one["name"]),
        "title": clean(one["title"]) + (f", {clean(one['name'])}" if one["kind"] == "output" else ""),
        "against": clean(one["against"]),
        "better": clean(one["better"]),
        "before": figure(one["before"]),
        "after": figure(one["after"]),
        "difference": figure(one["difference"]),
        "interval": interval,
        "method": _method(one),
        "improved": count(one["improved"]),
        "equal": count(one["equal"]),
        "worsened": count(one["worsened"]),
        "p_value": figure(one["p_value"]),
        "css": css,
        "outcome": outcome,
        "needed": count(one["needed"]) if one["needed"] else "",
        "decisions": _decisions(one["decisions"]),
    }


def _method(one: Mapping[str, Any]) -> str:
    if one["method"] == "none":
        return "too few samples for an interval"
    name = {"bca": "BCa", "percentile": "percentile"}[one["method"]]
    return f"{percent(one['confidence'])} {name} interval of {count(one['resamples'])} draws"


def _decisions(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    return (
        f"right on both sides {count(one['both'])}, only before {count(one['only_before'])}, "
        f"only after {count(one['only_after'])}, on neither {count(one['neither'])}; McNemar's exact p = {figure(one['p_value'])}"
    )


def _budget(one: Mapping[str, Any]) -> dict[str, str]:
    css, verdict = _OUTCOMES[one["verdict"]]
    budget = one["budget"]
    tolerance = budget["tolerance"]
    limit = figure(budget["limit"]) if tolerance is None else f"atol {tolerance['atol']:g} + rtol {tolerance['rtol']:g}"
    return {
        "output": clean(one["output"]),
        "metric": clean(budget["metric"]),
        "limit": limit,
        "reason": clean(budget["reason"]),
        "before": figure(one["before"]),
        "after": figure(one["after"]),
        "misses": f"{count(one['misses'])} of {count(one['samples'])}",
        "bound": f"{percent(one['bound'])} of samples, with {percent(one['confidence'])} confidence",
        "needed": "" if one["verdict"] == "within" else count(one["needed"]),
        "css": css,
        "verdict": verdict,
    }


def _output(one: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in one["before"] if name in one["after"]]
    return {
        "name": clean(one["output"]),
        "dtype": clean(one["dtype"]),
        "nonfinite": (count(one["nonfinite_before"]), count(one["nonfinite_after"])),
        "metrics": [(clean(name), figure(one["before"][name]), figure(one["after"][name])) for name in names],
        "decisions": _decisions(one["decisions"]),
    }


def _latency(latency: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "name": name,
                "median": _ms(latency[name]["median"]),
                "mad": _ms(latency[name]["mad"]),
                "p95": _ms(latency[name]["p95"]),
            }
            for name in ("before", "after")
        ],
        "rounds": count(latency["rounds"]),
        "warm_up": count(latency["warm_up"]),
        "speedup": f"{figure(latency['speedup'])} ({figure(latency['low'])} to {figure(latency['high'])})",
    }


def _ms(seconds: object) -> str:
    value = number(seconds)
    return ABSENT if value is None else f"{figure(value * 1000)} ms"


def _regression(one: Mapping[str, Any]) -> Sequence[str]:
    return clean(one["sample"]), clean(one["quantity"]), figure(one["before"]), figure(one["after"])
