"""The study as one self-contained HTML page: no network, no font, no script but its own; works offline and printed.

The page is laid out by `templates/report.html.j2` from the view model with autoescaping; drawings are SVG made here.
The data for the page's script and the JSON of the study lie in `<script type="application/json">` with `<`, `>` and
`&` escaped, so that no name can end the element. Without JavaScript everything is there, only unsorted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer, _draw_bars, _draw_depth, _draw_graph, _draw_histogram, _draw_stretches
from parityscope.report.as_json import trimmed
from parityscope.report.view import view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

__all__ = ["RENDERER", "render"]

# A graph with at most this many nodes side by side stands beside the plots, a wider one below them.
_BESIDE = 2
_TEMPLATES = Path(__file__).with_name("templates")


def render(document: Mapping[str, Any]) -> str:
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
    model = view(document)
    return environment.get_template("report.html.j2").render(
        view=model,
        drawings=_drawings(model["figures"], Markup),
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),  # noqa: S704 our own file
        script=Markup((_TEMPLATES / "script.js").read_text(encoding="utf-8")),  # noqa: S704 our own file
        data=Markup(_embedded({"depth": _draw_depth.positions(model["figures"]["depth"])})),  # noqa: S704 escaped there
        study=Markup(_embedded(trimmed(document))),  # noqa: S704 escaped there
    )


def _drawings(figures: Mapping[str, Any], markup: type[Markup]) -> dict[str, Any]:
    """The SVG of every figure; an empty string where there is nothing to draw."""
    return {
        "depth": markup(_draw_depth.draw(figures["depth"])),
        "stretches": markup(_draw_stretches.draw(figures["stretches"])),
        "tensors": [
            {name: markup(drawn) for name, drawn in _panel(f"plot{place}", panel).items()}
            for place, panel in enumerate(figures["tensors"])
        ],
    }


def _panel(identity: str, panel: Mapping[str, Any]) -> dict[str, str]:
    name = panel["name"]
    graph = _draw_graph.draw(f"{identity}-graph", name, panel["graph"]) if panel["graph"] else ""
    return {
        "values": _draw_histogram.draw_values(f"{identity}-values", name, panel["values"]),
        "error": _draw_histogram.draw_errors(f"{identity}-error", name, panel["error"]),
        "channels": _draw_bars.draw(f"{identity}-channels", name, panel["channels"]),
        "graph": graph,
        "wide": "wide" if panel["graph"] and _draw_graph.widest(panel["graph"]) > _BESIDE else "",
    }


def _embedded(value: object) -> str:
    """`value` as JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


RENDERER = Renderer(name="html", suffix=".html", render=render)
