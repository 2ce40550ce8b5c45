"""A forecast as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of, trusted_markup
from parityscope.report.forecast.draw import draw_depth, draw_ranges
from parityscope.report.forecast.view import view_forecast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["forecast_as_html"]


def forecast_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    formats = document["formats"]
    values = {
        "view": view_forecast(document),
        "depth": trusted_markup(draw_depth(formats, introduced=False)) if len(formats) > 1 else "",
        "single": [trusted_markup(draw_depth([each], introduced=True)) for each in formats],
        "ranges": trusted_markup(draw_ranges(document["ranges"], formats)),
        "style": text_of(TEMPLATES / "style.css", TEMPLATES / "forecast.css"),
        "data": embedded_json(document),
    }
    return laid_out(TEMPLATES / "forecast.html.j2", values)
