"""A repair as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report.repair.draw import draw_front
from parityscope.report.repair.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["as_html"]

_HERE = Path(__file__).parent
_SHARED = _HERE.with_name("templates")


def as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style = (_SHARED / "style.css").read_text(encoding="utf-8") + (_HERE / "repair.css").read_text(encoding="utf-8")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    embedded = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return environment.get_template("repair.html.j2").render(
        view=view(document),
        front=Markup(draw_front(document)),  # noqa: S704 our own drawing
        style=Markup(style),  # noqa: S704 our own files
        data=Markup(embedded),  # noqa: S704 escaped above
    )
