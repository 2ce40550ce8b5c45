"""The study as strict JSON for programs: `schema` first, then the other keys in alphabetical order.

Bulk that only tables and plots need (tensors, histograms, statistics, executed layers) stays in `study.json`; what is left is a
study still, which can be read again. Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report._plain import to_plain_data

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEFT_OUT = {"calls", "graph_views", "ladder", "localization", "plots", "tensors", "wiring"}
_BULK = {"executed_layers", "statistics", "measurements", "per_sample"}


def documented_part(document: Mapping[str, Any]) -> dict[str, Any]:
    """The documented part of `document`, plain data in the order it is written."""
    kept = {key: value for key, value in document.items() if key not in _LEFT_OUT}
    return {"schema": document.get("schema", "parityscope/1"), **_sort_documented(to_plain_data(kept))}


def render_json(document: Mapping[str, Any]) -> str:
    """`document` as JSON text that ends in a newline."""
    return json.dumps(documented_part(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sort_documented(value: Any) -> Any:
    """Plain data with sorted keys and without bulk."""
    if isinstance(value, dict):
        return {key: _sort_documented(value[key]) for key in sorted(value) if key not in _BULK}
    if isinstance(value, list):
        return [_sort_documented(item) for item in value]
    return value


RENDERER = Renderer(name="json", suffix=".json", render=render_json)
