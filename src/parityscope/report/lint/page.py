"""What lint found as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report.lint.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["as_html"]

_TEMPLATES = Path(__file__).parent.with_name("templates")


def as_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    embedded = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return environment.get_template("lint.html.j2").render(
        view=view(document),
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),  # noqa: S704 our own file
        data=Markup(embedded),  # noqa: S704 escaped above
    )
