"""Logs as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of
from parityscope.report.log.view import view_logs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["log_as_html"]

_HERE = Path(__file__).parent


def log_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    values = {"view": view_logs(document), "style": text_of(TEMPLATES / "style.css"), "data": embedded_json(document)}
    return laid_out(_HERE / "log.html.j2", values)
