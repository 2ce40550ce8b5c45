"""What changed as one self-contained HTML page: no network; works offline, in dark and light, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of
from parityscope.report.diff.view import view_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["changes_as_html"]

_HERE = Path(__file__).parent


def changes_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    values = {
        "view": view_changes(document),
        "style": text_of(TEMPLATES / "style.css"),
        "data": embedded_json(document),
    }
    return laid_out(_HERE / "diff.html.j2", values)
