"""The view model of logs: every number worded, findings by role, lines by what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.listed import view_listed
from parityscope.report.words import clean, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERDICTS = {
    "beyond": ("\N{MULTIPLICATION X}", "numbers were changed, or nothing was built"),
    "within": ("\N{CHECK MARK}", "nothing in the log changes numbers by itself"),
    "incomplete": ("?", "the log does not say enough"),
}
_EFFECTS = ("harmful", "may harm", "harmless")
_MOST_ROWS = 20  # rows of a table (chosen); the JSON holds them all


def view_logs(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a document about logs."""
    symbol, label = _VERDICTS[document["verdict"]]
    listed = view_listed(document)
    logs = [one for one in (document["reference"], document["candidate"]) if one]
    causes = listed["causes"]
    return {
        **listed,
        "verdict": document["verdict"],
        "symbol": symbol,
        "label": label,
        "headline": causes[0]["claim"].partition("; ")[0] if causes else "No cause in the log.",
        "logs": [_view_log(one) for one in logs],
        "counts": {role: format_count(number) for role, number in document["counts"].items()},
        "comparison": _view_comparison(document["comparison"]) if document["comparison"] else None,
    }


def _view_log(log: Mapping[str, Any]) -> dict[str, Any]:
    explained = sorted(log["explained"], key=lambda one: (_EFFECTS.index(one["effect"]), one["line"]))
    return {
        "name": clean(log["name"]),
        "about": f"{format_bytes(log['nbytes'])}, "
        + (f"{format_count(log['lines'])} lines of {clean(log['tool'])}" if log["lines"] else clean(log["tool"]))
        + (f", {clean(log['outcome'])}" if log["outcome"] != "unknown" else ""),
        "facts": [(clean(key), clean(value)) for key, value in _log_facts(log)],
        "explained": [
            {
                "effect": one["effect"],
                "means": clean(one["means"]),
                "why": clean(one["why"]),
                "count": format_count(one["count"]),
                "line": format_count(one["line"]),
                "text": clean(one["text"]),
            }
            for one in explained
        ],
        "unexplained": [
            {"line": format_count(one["line"] if "line" in one else one["number"]), "text": clean(one["text"])}
            for one in log["unexplained"]
        ],
        "layers": _first_rows(
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


def _log_facts(log: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = log["layer_counts"]
    several = log["builds"] > 1
    told = [
        ("builds", f"{format_count(log['builds'])}; layers, inputs and outputs are the last one's" if several else ""),
        (
            "runs",
            f"{format_count(log['runs'])}, {format_count(log['failed_runs'])} of them failed"
            if log["runs"] > 1
            else "",
        ),
        *log["versions"].items(),
        *log["facts"].items(),
        ("TF32", log["tf32"] or "not told"),
        ("types that layers write", log["precision"]),
        ("inputs, in this order", _describe_tensors(log["inputs"])),
        ("outputs, in this order", _describe_tensors(log["outputs"])),
        (
            "network layers",
            f"{format_count(counts[0]['layers'])}, then {format_count(counts[-1]['layers'])}" if counts else "",
        ),
        ("engine layers", format_count(len(log["layers"])) if log["layers"] else ""),
        ("fusions told", format_count(len(log["fusions"])) if log["fusions"] else ""),
        ("regions of another compiler", format_count(len(log["regions"])) if log["regions"] else ""),
        ("reformats", format_count(log["reformats"]) if log["layers"] else ""),
        *((f"{one['what']}", f"{one['milliseconds']:g} ms") for one in log["timings"] if "median" in one["what"]),
    ]
    return [(key, value) for key, value in told if value]


def _describe_tensors(tensors: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['name']} {one['dtype']}[{one['dimensions']}]".replace(" []", "") for one in tensors)


def _view_comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "summary": f"{format_count(comparison['nodes'])} nodes in both engines: "
        f"{format_count(comparison['retyped'])} write another type, "
        f"{format_count(comparison['regrouped'])} are fused with other nodes, "
        f"{format_count(comparison['rekerneled'])} have another kernel",
        "differences": [
            [clean(one["what"]), clean(one["reference"]) or "-", clean(one["candidate"]) or "-"]
            for one in comparison["differences"]
        ],
        "changed": _first_rows(comparison["changed"], _row_of_changed_node),
        "changed_more": max(0, len(comparison["changed"]) - _MOST_ROWS),
        "only": [
            (side, format_count(len(comparison[key])), clean(", ".join(comparison[key][:_MOST_ROWS])))
            for side, key in (("the first", "only_reference"), ("the second", "only_candidate"))
            if comparison[key]
        ],
    }


def _row_of_changed_node(node: Mapping[str, Any]) -> list[str]:
    sides = [node["reference"], node["candidate"]]
    types = ["/".join(side["types"]) or "not told" for side in sides]
    return [
        clean(node["node"]),
        clean(types[0] if types[0] == types[1] else f"{types[0]} -> {types[1]}"),
        clean(sides[0]["layer"]),
        clean("the same" if sides[0]["layer"] == sides[1]["layer"] else sides[1]["layer"]),
    ]


def _first_rows(items: Sequence[Mapping[str, Any]], row: Any) -> list[list[str]]:
    return [row(item) for item in items[:_MOST_ROWS]]
