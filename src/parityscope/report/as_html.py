"""The study as one self-contained HTML page: no network, no font, no script but its own; works offline and printed.

The page is laid out by `templates/report.html.j2` from the view model with autoescaping; drawings are SVG made here.
The data for the page's script and the JSON of the study lie in `<script type="application/json">` with `<`, `>` and
`&` escaped, so that no name can end the element. Without JavaScript all but the map and the later rows is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import OWN, speaking
from parityscope.report import Renderer, _draw_bars, _draw_depth, _draw_graph, _draw_histogram, _draw_stretches
from parityscope.report._bilingual import OTHER, paired
from parityscope.report._first_screen import first_screen
from parityscope.report._map import STATES, columns
from parityscope.report._page import TEMPLATES, embedded, laid_out, text_of, trusted
from parityscope.report.as_json import trimmed
from parityscope.report.view import view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["RENDERER", "render"]

# Rows of the table that are there without JavaScript (chosen: a screenful or two; all of them would be most of the page).
_FALLBACK = 50
# A graph with at most this many nodes side by side stands beside the plots, a wider one below them.
_BESIDE = 2


def render(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    with speaking(OWN):
        model = view(document)
    with speaking(OTHER):
        told = dict(paired(model["first_screen"], first_screen(document, model)))
    values = {
        "view": model,
        "drawings": _drawings(model["figures"]),
        "style": text_of(TEMPLATES / "style.css"),
        "script": text_of(TEMPLATES / "script.js", TEMPLATES / "map.js"),
        "data": embedded(_data(document, model)),
        "states": STATES,
        "fallback": _FALLBACK,
        "study": embedded(trimmed(document)),
    }
    drawn = [*STATES, *_drawn(columns(document, model["tensors"]))]
    return laid_out(TEMPLATES / "report.html.j2", values, told=told, drawn=drawn)


def _drawn(held: Mapping[str, Any]) -> Iterator[str]:
    """The words of the columns that the page's script shows."""
    yield from held["grade"]["texts"]
    yield from (text for text, _ in held["lost"].values())
    yield from held["how"].values()


def _data(document: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's scripts draw from: the rows of the table, the network, and where the drawings' points lie."""
    return {
        "rows": columns(document, model["tensors"]),
        "map": model["map"],
        "states": STATES,
        "depth": _draw_depth.positions(model["figures"]["depth"]),
        "panels": {panel["name"]: f"panel-{place}" for place, panel in enumerate(model["figures"]["tensors"])},
    }


def _drawings(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The SVG of every figure; an empty string where there is nothing to draw."""
    return {
        "depth": trusted(_draw_depth.draw(figures["depth"])),
        "stretches": trusted(_draw_stretches.draw(figures["stretches"])),
        "tensors": [
            {name: trusted(drawn) for name, drawn in _panel(f"plot{place}", panel).items()}
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


RENDERER = Renderer(name="html", suffix=".html", render=render)
