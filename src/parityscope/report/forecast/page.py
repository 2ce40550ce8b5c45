"""A forecast as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded, laid_out, text_of, trusted
from parityscope.report.forecast.draw import draw_depth, draw_ranges
from parityscope.report.forecast.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["as_html"]


def as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    formats = document["formats"]
    values = {
        "view": view(document),
        "depth": trusted(draw_depth(formats, introduced=False)) if len(formats) > 1 else "",
        "single": [trusted(draw_depth([each], introduced=True)) for each in formats],
        "ranges": trusted(draw_ranges(document["ranges"], formats)),
        "style": text_of(TEMPLATES / "style.css", TEMPLATES / "forecast.css"),
        "data": embedded(document),
    }
    return laid_out(TEMPLATES / "forecast.html.j2", values)
