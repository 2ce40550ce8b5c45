"""The study as strict JSON for programs: `schema` first, then the documented keys in alphabetical order.

Bulk that only plots need (tensors, histograms, statistics, executed layers) stays in `study.json`. Non-finite numbers
are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from parityscope.report import Renderer

__all__ = ["RENDERER", "render", "trimmed"]

_KEYS = (
    "candidate",
    "environment",
    "findings",
    "model",
    "outputs",
    "reference",
    "refuted",
    "skipped",
    "suspects",
    "unexplained",
    "verdict",
)
_EMPTY: Mapping[str, Any] = {
    "candidate": {},
    "environment": {},
    "findings": [],
    "model": {},
    "outputs": [],
    "reference": {},
    "refuted": [],
    "skipped": [],
    "suspects": [],
    "unexplained": None,
    "verdict": "incomplete",
}
_BULK = {"executed_layers", "statistics", "measurements", "per_sample"}


def trimmed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The documented part of `document`, plain data in the order it is written."""
    ordered: dict[str, Any] = {"schema": document.get("schema", "parityscope/1")}
    for key in _KEYS:
        ordered[key] = _plain(document.get(key, _EMPTY[key]))
    return ordered


def render(document: Mapping[str, Any]) -> str:
    """`document` as JSON text that ends in a newline."""
    return json.dumps(trimmed(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """`value` with sorted keys, without bulk, and with non-finite floats as their strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str) if key not in _BULK}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


RENDERER = Renderer(name="json", suffix=".json", render=render)
