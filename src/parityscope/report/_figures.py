"""View of the plots: the numbers that the drawings need, and nothing about how they look.

Errors are relative L2; None is absent, infinity and NaN stay what they are (the drawings give them a lane of their
own). Histograms are by power of two: bin e counts the elements with 2^e <= |x| < 2^(e+1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._tensors import GRADES, describe_nonfinite, is_minor_suspect
from parityscope.report.words import as_number, clean, format_count, format_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMED_SUSPECTS = 3


def view_figures(document: Mapping[str, Any]) -> dict[str, Any]:
    """Error along the network and along calls, contributions to the output error, then a panel for each plotted tensor."""
    return {
        "depth": _view_depth(document),
        "calls": _view_calls(document),
        "stretches": _view_stretches(document),
        "tensors": _view_panels(document),
    }


def _view_calls(document: Mapping[str, Any]) -> dict[str, Any]:
    """The errors of repeated calls as those of a depth, and `rows` of them in words; no points where nothing was fed back."""
    calls = document.get("calls") or {}
    steps, parting = calls.get("steps") or (), calls.get("parting") or {}
    declared = GRADES.get(str((document.get("policy") or {}).get("declared")), "FP32")
    lines = (("forced", "teacher-forced", True), ("expected", f"{declared} expected", False))
    marked = [
        {
            "rank": 1,
            "index": as_number(step["call"]),
            "introduced": as_number(step.get("error")) or 0.0,
            "name": f"token {parting.get('other')} for {parting.get('token')}",
            "text": f"margin {format_figure(parting.get('margin'))}, moved by {format_figure(parting.get('moved'))}",
        }
        for step in steps
        if parting and step["call"] == parting.get("call")
    ]
    return {
        "points": [
            {
                "row": int(step["call"]),
                "index": as_number(step["call"]),
                "total": as_number(step.get("error")),
                "introduced": as_number(step.get("introduced")),
                "inherited": as_number(step.get("inherited")),
            }
            for step in steps
        ],
        "floor": [None for _ in steps],
        "expected": [
            {"format": "", "label": label, "declared": own, "values": [_told_number(step.get(key)) for step in steps]}
            for key, label, own in lines
        ],
        "suspects": marked,
        "rows": [_view_call(step) for step in steps],
        "parts": parting.get("call"),
    }


def _told_number(value: Any) -> float | None:
    """A number; None also for NaN, which says here that nothing is known."""
    found = as_number(value)
    return None if found is None or math.isnan(found) else found


def _view_call(step: Mapping[str, Any]) -> dict[str, str]:
    tokens = [step.get(key) for key in ("token", "free_token", "forced_token")]
    figures = {
        key: "" if (value := _told_number(step.get(key))) is None else format_figure(value)
        for key in ("error", "forced", "expected")
    }
    return {"call": format_count(step["call"]), **figures} | {
        key: "" if token is None else format_count(token)
        for key, token in zip(("token", "free_token", "forced_token"), tokens, strict=True)
    }


def _view_stretches(document: Mapping[str, Any]) -> dict[str, Any]:
    """Each stretch's nodes and its share of the output error, and the index of the last node."""
    nodes = {
        int(tensor["index"]): clean(tensor.get("node") or tensor.get("name") or "")
        for tensor in document.get("tensors", ())
        if as_number(tensor.get("index")) is not None
    }
    last = max(nodes, default=0)
    steps: list[dict[str, Any]] = []
    for found in (document.get("localization") or {}).get("stretches") or ():
        end = int(found["last"]) if int(found["last"]) >= 0 else max(last, int(found["first"]))
        first = int(found["first"])
        name = nodes.get(end, f"node {end}") if first == end else f"nodes {first:,} to {end:,}"
        steps.append({"first": first, "last": end, "share": as_number(found["share"]) or 0.0, "name": name})
    return {"steps": steps, "last": max([last, *(int(step["last"]) for step in steps)])}


def _view_depth(document: Mapping[str, Any]) -> dict[str, Any]:
    """Total, introduced and inherited error of every tensor that has a place in the graph."""
    rows = [
        (row, tensor)
        for row, tensor in enumerate(document.get("tensors", ()))
        if as_number(tensor.get("index")) is not None
    ]
    formats = sorted({name for _, tensor in rows for name in tensor.get("expected") or ()})
    return {
        "points": [_view_point(row, tensor) for row, tensor in rows],
        "floor": [as_number(tensor.get("floor")) for _, tensor in rows],
        "expected": [
            {
                "format": GRADES.get(name, clean(name)),
                "declared": name == (document.get("policy") or {}).get("declared"),
                "values": [as_number((tensor.get("expected") or {}).get(name)) for _, tensor in rows],
            }
            for name in formats
        ],
        "suspects": _marked_suspects(document),
    }


def _view_point(row: int, tensor: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "row": row,
        "index": as_number(tensor["index"]),
        "total": as_number(tensor.get("rel_l2")),
        "introduced": as_number(tensor.get("introduced")),
        "inherited": as_number(tensor.get("inherited")),
    }


def _marked_suspects(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The leading suspects that stand above their floor."""
    shown = []
    for rank, suspect in enumerate(document.get("suspects", ())[:_NAMED_SUSPECTS], start=1):
        site = suspect.get("site", {})
        introduced = as_number(suspect.get("introduced"))
        if introduced is None or introduced <= (as_number(suspect.get("floor")) or 0.0):
            continue
        shown.append(
            {
                "rank": rank,
                "index": as_number(site.get("index")),
                "introduced": introduced,
                "name": clean(site.get("node") or site.get("tensor") or ""),
                "text": f"introduces {format_figure(introduced)}, inherits {format_figure(suspect.get('inherited'))}",
            }
        )
    return shown


def _view_panels(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One panel a plotted tensor: the suspects in their order, then the outputs."""
    plots, graphs = document.get("plots") or {}, document.get("graph_views") or {}
    rows = {row.get("name"): row for row in document.get("tensors", ())}
    blamed = [suspect.get("site", {}).get("tensor") for suspect in document.get("suspects", ())]
    ranks = {name: rank for rank, name in enumerate(blamed, start=1)}
    ranked = document.get("suspects", ())
    hardly = {row.get("site", {}).get("tensor") for row in ranked if is_minor_suspect(row, ranked)}
    names = sorted({*plots, *graphs}, key=lambda name: (ranks.get(name, len(ranks) + 1), name))
    panels = [
        _view_panel(name, ranks.get(name), rows.get(name, {}), plots.get(name, {}), graphs.get(name))
        | {"minor": name in hardly}
        for name in names
    ]
    return [panel for panel in panels if any(panel[part] for part in ("values", "error", "channels", "graph"))]


def _view_panel(
    name: str, rank: int | None, row: Mapping[str, Any], plot: Mapping[str, Any], graph: Mapping[str, Any] | None
) -> dict[str, Any]:
    role = f"suspect {rank}" if rank else "output" if row.get("is_output") else "tensor"
    return {
        "name": clean(name),
        "role": role,
        "node": clean(row.get("node", "")),
        "op_type": clean(row.get("op_type", "")),
        "nonfinite": describe_nonfinite(row.get("nonfinite")),
        "values": [
            {"side": side, "bins": _signed_bins(plot[side])} for side in ("reference", "candidate") if plot.get(side)
        ],
        "error": [(int(exponent), int(n)) for exponent, n in plot.get("error") or ()],
        "channels": [
            {"index": format_count(index), "value": as_number(value) or 0.0, "text": format_figure(value)}
            for index, value in plot.get("channels") or ()
        ],
        "graph": _view_graph(graph) if graph and graph.get("nodes") else None,
    }


def _signed_bins(histogram: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "negative": [(int(exponent), int(n)) for exponent, n in histogram.get("negative") or ()],
        "zero": int(histogram.get("zero") or 0),
        "positive": [(int(exponent), int(n)) for exponent, n in histogram.get("positive") or ()],
    }


def _view_graph(graph: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "id": str(node["id"]),
                "label": clean(node.get("label") or node["id"]),
                "op_type": clean(node.get("op_type", "")),
                "introduced": as_number(node.get("introduced")),
                "inherited": as_number(node.get("inherited")),
                "is_suspect": bool(node.get("is_suspect")),
            }
            for node in graph["nodes"]
        ],
        "edges": [
            (str(edge[0]), str(edge[1]), clean(edge[2]) if len(edge) > 2 else "") for edge in graph.get("edges", ())
        ],
    }
