"""What lint found as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of
from parityscope.report.lint.view import view_lint

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["lint_as_html"]


def lint_as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    values = {"view": view_lint(document), "style": text_of(TEMPLATES / "style.css"), "data": embedded_json(document)}
    return laid_out(TEMPLATES / "lint.html.j2", values)
