"""A verification as one self-contained HTML page: no network, no script; works offline, in dark and light, and printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report.verification.draw import draw_latency, draw_pairs
from parityscope.report.verification.view import view

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
    style = "".join(path.read_text(encoding="utf-8") for path in (_SHARED / "style.css", _HERE / "page.css"))
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    embedded = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return environment.get_template("page.html.j2").render(
        view=view(document),
        pairs=[Markup(draw_pairs(one, place)) for place, one in enumerate(document["quantities"])],  # noqa: S704 our own drawing
        latency=Markup(draw_latency(document["latency"])) if document["latency"] else "",  # noqa: S704 our own drawing
        style=Markup(style),  # noqa: S704 our own file
        data=Markup(embedded),  # noqa: S704 escaped above
    )
