"""The view model of logs: every number worded, findings by role, lines by what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings
from parityscope.report._offered import repairs
from parityscope.report.words import clean, count, nbytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["view"]

_VERDICTS = {
    "beyond": ("\N{MULTIPLICATION X}", "numbers were changed, or nothing was built"),
    "within": ("\N{CHECK MARK}", "nothing in the log changes numbers by itself"),
    "incomplete": ("?", "the log does not say enough"),
}
_EFFECTS = ("harmful", "may harm", "harmless")
_MOST_ROWS = 20  # rows of a table (chosen); the JSON holds them all


def view(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a document about logs."""
    symbol, label = _VERDICTS[document["verdict"]]
    shown = [_finding(one) for one in document["findings"]]
    logs = [one for one in (document["reference"], document["candidate"]) if one]
    causes = [one for one in shown if one["role"] == "cause"]
    return {
        "verdict": document["verdict"],
        "symbol": symbol,
        "label": label,
        "headline": causes[0]["claim"].partition("; ")[0] if causes else "No cause in the log.",
        "logs": [_log(one) for one in logs],
        "counts": {role: count(number) for role, number in document["counts"].items()},
        "causes": causes,
        "contributing": [one for one in shown if one["role"] == "contributing"],
        "information": [one for one in shown if one["role"] == "information"],
        "comparison": _comparison(document["comparison"]) if document["comparison"] else None,
        "skipped": [{key: clean(item[key]) for key in ("what", "reason", "fix")} for item in document["skipped"]],
        "command": clean(document["command"]),
        "tool": clean(f"{document['tool']['name']} {document['tool']['version']}"),
        "schema": clean(document["schema"]),
    }


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    alone = {"findings": [finding]}
    return {**findings(alone)[0], "repairs": repairs(alone)}


def _log(log: Mapping[str, Any]) -> dict[str, Any]:
    explained = sorted(log["explained"], key=lambda one: (_EFFECTS.index(one["effect"]), one["line"]))
    return {
        "name": clean(log["name"]),
        "about": f"{nbytes(log['nbytes'])}, "
        + (f"{count(log['lines'])} lines of {clean(log['tool'])}" if log["lines"] else clean(log["tool"]))
        + (f", {clean(log['outcome'])}" if log["outcome"] != "unknown" else ""),
        "facts": [(clean(key), clean(value)) for key, value in _facts(log)],
        "explained": [
            {
                "effect": one["effect"],
                "means": clean(one["means"]),
                "why": clean(one["why"]),
                "count": count(one["count"]),
                "line": count(one["line"]),
                "text": clean(one["text"]),
            }
            for one in explained
        ],
        "unexplained": [
            {"line": count(one["line"] if "line" in one else one["number"]), "text": clean(one["text"])}
            for one in log["unexplained"]
        ],
        "layers": _rows(
            log["layers"],
            lambda layer: [
                clean(layer["name"]),
                clean(layer["kind"]),
                clean("/".join(layer["types"])),
                clean(", ".join(layer["nodes"])),
            ],
        ),
        "layers_more": max(0, len(log["layers"]) - _MOST_ROWS),
    }


def _facts(log: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = log["layer_counts"]
    several = log["builds"] > 1
    told = [
        ("builds", f"{count(log['builds'])}; layers, inputs and outputs are the last one's" if several else ""),
        ("runs", f"{count(log['runs'])}, {count(log['failed_runs'])} of them failed" if log["runs"] > 1 else ""),
        *log["versions"].items(),
        *log["facts"].items(),
        ("TF32", log["tf32"] or "not told"),
        ("types that layers write", log["precision"]),
        ("inputs, in this order", _order(log["inputs"])),
        ("outputs, in this order", _order(log["outputs"])),
        ("network layers", f"{count(counts[0]['layers'])}, then {count(counts[-1]['layers'])}" if counts else ""),
        ("engine layers", count(len(log["layers"])) if log["layers"] else ""),
        ("fusions told", count(len(log["fusions"])) if log["fusions"] else ""),
        ("regions of another compiler", count(len(log["regions"])) if log["regions"] else ""),
        ("reformats", count(log["reformats"]) if log["layers"] else ""),
        *((f"{one['what']}", f"{one['milliseconds']:g} ms") for one in log["timings"] if "median" in one["what"]),
    ]
    return [(key, value) for key, value in told if value]


def _order(tensors: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['name']} {one['dtype']}[{one['dimensions']}]".replace(" []", "") for one in tensors)


def _comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "summary": f"{count(comparison['nodes'])} nodes in both engines: {count(comparison['retyped'])} write another type, "
        f"{count(comparison['regrouped'])} are fused with other nodes, {count(comparison['rekerneled'])} have another kernel",
        "differences": [
            [clean(one["what"]), clean(one["reference"]) or "-", clean(one["candidate"]) or "-"]
            for one in comparison["differences"]
        ],
        "changed": _rows(comparison["changed"], _changed),
        "changed_more": max(0, len(comparison["changed"]) - _MOST_ROWS),
        "only": [
            (side, count(len(comparison[key])), clean(", ".join(comparison[key][:_MOST_ROWS])))
            for side, key in (("the first", "only_reference"), ("the second", "only_candidate"))
            if comparison[key]
        ],
    }


def _changed(node: Mapping[str, Any]) -> list[str]:
    sides = [node["reference"], node["candidate"]]
    types = ["/".join(side["types"]) or "not told" for side in sides]
    return [
        clean(node["node"]),
        clean(types[0] if types[0] == types[1] else f"{types[0]} -> {types[1]}"),
        clean(sides[0]["layer"]),
        clean("the same" if sides[0]["layer"] == sides[1]["layer"] else sides[1]["layer"]),
    ]


def _rows(items: Sequence[Mapping[str, Any]], row: Any) -> list[list[str]]:
    return [row(item) for item in items[:_MOST_ROWS]]
