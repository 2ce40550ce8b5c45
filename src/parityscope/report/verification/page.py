"""A verification as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of, trusted_markup
from parityscope.report.verification.draw import draw_latency, draw_pairs
from parityscope.report.verification.view import view_verification

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["verification_as_html"]

_HERE = Path(__file__).parent


def verification_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    values = {
        "view": view_verification(document),
        "pairs": [trusted_markup(draw_pairs(one, place)) for place, one in enumerate(document["quantities"])],
        "latency": trusted_markup(draw_latency(document["latency"])) if document["latency"] else "",
        "style": text_of(TEMPLATES / "style.css", _HERE / "page.css"),
        "data": embedded_json(document),
    }
    return laid_out(_HERE / "page.html.j2", values)
