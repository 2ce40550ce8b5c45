"""What was checked as one self-contained HTML page, with a link to the report of each pair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of
from parityscope.report.check.view import describe_summary, view_pair
from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_as_html"]

_HERE = Path(__file__).parent
_STYLES = {"beyond": "beyond", "error": "beyond", "incomplete": "incomplete"}
_SYMBOLS = {"beyond": "✕", "error": "✕", "incomplete": "?"}


def check_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    verdict = str(document["verdict"])
    view = {
        "symbol": _SYMBOLS.get(verdict, "✓"),
        "css": _STYLES.get(verdict, "within"),
        "title": describe_summary(document),
        "file": clean(document["file"]),
        "pairs": [view_pair(one) for one in document["pairs"]],
        "command": clean(document["command"]),
        "tool": clean(f"{document['tool']['name']} {document['tool']['version']}"),
        "schema": clean(document["schema"]),
    }
    values = {"view": view, "style": text_of(TEMPLATES / "style.css"), "data": embedded_json(document)}
    return laid_out(_HERE / "check.html.j2", values)
