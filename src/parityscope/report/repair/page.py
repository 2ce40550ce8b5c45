"""A repair as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of, trusted_markup
from parityscope.report.repair.draw import draw_front
from parityscope.report.repair.view import view_repair

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["repair_as_html"]

_HERE = Path(__file__).parent


def repair_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    values = {
        "view": view_repair(document),
        "front": trusted_markup(draw_front(document)),
        "style": text_of(TEMPLATES / "style.css", _HERE / "repair.css"),
        "data": embedded_json(document),
    }
    return laid_out(_HERE / "repair.html.j2", values)
