"""The lines of lists and trends, worded: every text one line without control characters, every number as reports write it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from parityscope.report.words import clean, format_count, format_percent, shorten_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SYMBOLS = {"within": "\N{CHECK MARK}", "beyond": "\N{MULTIPLICATION X}", "incomplete": "?"}
_NAME = 90  # signs of a name in a list; chosen
_BEYOND = {"refuted", "beyond"}  # a verification is refuted


def view_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A study's line; `css` is the verdict that its colour tells."""
    verdict = "unreadable" if row["problem"] else str(row["verdict"])
    css = "beyond" if verdict in _BEYOND else "within" if verdict in {"within", "proved", "confirmed"} else "incomplete"
    return {
        "identity": row["identity"],
        "name": shorten_name(row["model"], _NAME) or "?",
        "place": shorten_name(os.fsdecode(row["place"]), _NAME),
        "target": shorten_name(row["target"], _NAME),
        "version": shorten_name(row["version"], _NAME),
        "verdict": clean(verdict),
        "css": css,
        "symbol": _SYMBOLS[css],
        "error": format_percent(_as_told(row["error"])) if row["error"] is not None else "",
        "output": shorten_name(row["output"], _NAME),
        "created": _format_time(row["created"]),
        "told": shorten_name(row["problem"] or row["headline"], 3 * _NAME),
        "readable": not row["problem"],
        "kind": clean(row["kind"]),
    }


def view_series(one: Mapping[str, Any]) -> dict[str, Any]:
    """A model on a target over time: how many studies and versions, and what the last one said."""
    last = view_row(one["points"][-1])
    errors = [point["error"] for point in one["points"] if point["error"] is not None]
    return {
        "model": shorten_name(one["model"], _NAME) or "?",
        "target": shorten_name(one["target"], _NAME) or "?",
        "asked": {"model": one["model"], "target": one["target"]},
        "studies": format_count(one["studies"]),
        "versions": format_count(one["versions"]),
        "last": last,
        "range": " \N{EN DASH} ".join(format_percent(_as_told(each)) for each in (min(errors), max(errors)))
        if errors
        else "",
    }


def view_versions(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each version of the runtime gave, the newest study's version first: studies, verdicts, the median error."""
    held: dict[str, list[Mapping[str, Any]]] = {}
    for point in reversed(points):
        held.setdefault(str(point["version"]), []).append(point)
    found = []
    for version, group in held.items():
        errors = sorted(one["error"] for one in group if one["error"] is not None)
        found.append(
            {
                "version": shorten_name(version, _NAME) or "?",
                "studies": format_count(len(group)),
                "beyond": format_count(sum(one["verdict"] in _BEYOND for one in group)),
                "median": format_percent(_as_told(errors[len(errors) // 2])) if errors else "",
                "last": view_row(group[0]),
            }
        )
    return found


def view_pages(page: int, size: int, whole: int) -> dict[str, Any]:
    """Which page of how many a list shows."""
    pages = max(1, math.ceil(whole / size))
    return {
        "page": page,
        "pages": pages,
        "told": f"{format_count(page)} / {format_count(pages)}",
        "whole": format_count(whole),
        "before": page - 1 if page > 1 else None,
        "behind": page + 1 if page < pages else None,
    }


def _as_told(error: float) -> object:
    return error if math.isfinite(error) else "Infinity"


def _format_time(text: str) -> str:
    return clean(text).replace("T", " ").removesuffix("Z")[:16]
