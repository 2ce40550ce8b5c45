"""View of the tolerance ladder and of the triangle of reference, candidate and peer, already worded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.words import ABSENT, clean, format_count, format_figure

if TYPE_CHECKING:
    from collections.abc import Mapping


def view_ladder(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row a rung, from loose to tight; empty when no tensors were compared."""
    total = len(document.get("tensors", ()))
    nodes = {row.get("name"): row.get("node") or row.get("name") for row in document.get("tensors", ())}
    return [
        {
            "tolerance": format_figure(rung.get("tolerance")),
            "failing": f"{format_count(rung.get('failing') or 0)} of {format_count(total)}",
            "first": clean(nodes.get(rung.get("first"), rung.get("first")) or ABSENT),
            "new": _new_nodes_in_words(rung, nodes),
        }
        for rung in document.get("ladder") or ()
    ]


def _new_nodes_in_words(rung: Mapping[str, Any], nodes: Mapping[Any, Any]) -> str:
    names = [clean(nodes.get(name, name)) for name in rung.get("new") or ()]
    more = int(rung.get("new_count") or 0) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "") if names else ABSENT


def view_triangle(row: Mapping[str, Any]) -> dict[str, str] | None:
    """What the format costs anyway and what is this engine's own, of one output; None when no peer was run."""
    found = row.get("triangle")
    if not found:
        return None
    return {
        "peer": clean(found.get("peer") or ""),
        "candidate_reference": format_figure(found.get("candidate_reference")),
        "peer_reference": format_figure(found.get("peer_reference")),
        "candidate_peer": format_figure(found.get("candidate_peer")),
        "own": format_figure(found.get("own")),
    }
