"""The study as one self-contained HTML page: no network, no font, no script but its own; works offline and printed.

The page is laid out by `templates/report.html.j2` from the view model with autoescaping; drawings are SVG made here.
The data for the page's script and the JSON of the study lie in `<script type="application/json">` with `<`, `>` and
`&` escaped, so that no name can end the element. Without JavaScript all but the map and the later rows is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import OWN, speak_language
from parityscope.report import (
    Renderer,
    _draw_bars,
    _draw_curve,
    _draw_histogram,
    _draw_stretches,
    draw_depth,
    draw_graph,
)
from parityscope.report._bilingual import OTHER, paired_texts
from parityscope.report._map import STATES, columns_of_rows
from parityscope.report._page import TEMPLATES, embedded_json, laid_out, text_of, trusted_markup
from parityscope.report.as_json import documented_part
from parityscope.report.first_screen import first_screen
from parityscope.report.view import view_study

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Rows of the table that are there without JavaScript (chosen: a screenful or two; all of them would be most of the page).
_FALLBACK = 50
# A graph with at most this many nodes side by side stands beside the plots, a wider one below them.
_BESIDE = 2


def render_html(document: Mapping[str, Any]) -> str:
    """The page of `document`."""
    with speak_language(OWN):
        model = view_study(document)
    with speak_language(OTHER):
        told = dict(paired_texts(model["first_screen"], first_screen(document, model)))
    data = _page_data(document, model)
    values = {
        "view": model,
        "drawings": {**_draw_figures(model["figures"]), "curves": _draw_curves(model)},
        "style": text_of(TEMPLATES / "style.css"),
        "script": text_of(TEMPLATES / "script.js", TEMPLATES / "map.js"),
        "data": embedded_json(data),
        "states": STATES,
        "fallback": _FALLBACK,
        "study": embedded_json(documented_part(document)),
    }
    drawn = [*STATES, *_drawn_words(data["rows"])]
    return laid_out(TEMPLATES / "report.html.j2", values, told=told, drawn=drawn)


def _drawn_words(held: Mapping[str, Any]) -> Iterator[str]:
    """The words of the columns that the page's script shows."""
    yield from held["grade"]["texts"]
    yield from (text for text, _ in held["lost"].values())
    yield from set(held["how"].values())


def _page_data(document: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's scripts draw from: the rows of the table, the network, and where the depth chart has a node."""
    return {
        "rows": columns_of_rows(document, model["tensors"]),
        "map": model["map"],
        "states": STATES,
        "depth": draw_depth.axis_of_indices(model["figures"]["depth"]),
        "panels": {panel["name"]: f"panel-{place}" for place, panel in enumerate(model["figures"]["tensors"])},
    }


def _draw_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The SVG of every figure; an empty string where there is nothing to draw."""
    return {
        "depth": trusted_markup(draw_depth.draw_depth(figures["depth"])),
        "calls": trusted_markup(draw_depth.draw_depth(figures["calls"], draw_depth.CALLS)),
        "stretches": trusted_markup(_draw_stretches.draw_stretches(figures["stretches"])),
        "tensors": [
            {name: trusted_markup(drawn) for name, drawn in _draw_panel(f"plot{place}", panel).items()}
            for place, panel in enumerate(figures["tensors"])
        ],
    }


def _draw_curves(model: Mapping[str, Any]) -> dict[str, Any]:
    """The drawing of every finding's curve, by its identity."""
    curves = [finding["curve"] for finding in (*model["causes"], *model["others"]) if finding["curve"]]
    return {curve["identity"]: trusted_markup(_draw_curve.draw_curve(curve)) for curve in curves}


def _draw_panel(identity: str, panel: Mapping[str, Any]) -> dict[str, str]:
    name = panel["name"]
    graph = draw_graph.draw_neighbourhood(f"{identity}-graph", name, panel["graph"]) if panel["graph"] else ""
    return {
        "values": _draw_histogram.draw_values(f"{identity}-values", name, panel["values"]),
        "error": _draw_histogram.draw_errors(f"{identity}-error", name, panel["error"]),
        "channels": _draw_bars.draw_channel_bars(f"{identity}-channels", name, panel["channels"]),
        "graph": graph,
        "wide": "wide" if panel["graph"] and draw_graph.widest_layer(panel["graph"]) > _BESIDE else "",
    }


RENDERER = Renderer(name="html", suffix=".html", render=render_html)
