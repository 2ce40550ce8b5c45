"""What a layer gives as a curve of what it should give: the curve, some elements, and the model's own line beneath."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import svg
from parityscope.report.words import as_number, clean, format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH, _HEIGHT = 540.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 12.0, 44.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_TICKS = 6
_PAIRS = 6  # of a curve in a line of text; chosen


def view_curve(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A finding's curve for a report: numbers to draw, and some of them in words; empty where it has none."""
    curve = (finding.get("details") or {}).get("curve") or {}
    knots = [[as_number(value) for value in row] for row in curve.get("knots", ())]
    known = [(x, model, given) for x, model, given in knots if None not in (x, model, given)]
    if len(known) < 2:
        return {}
    places = sorted({round(place * (len(known) - 1) / (_PAIRS - 1)) for place in range(_PAIRS)})
    source = clean(curve.get("of", ""))
    return {
        "identity": f"curve-{clean((finding.get('site') or {}).get('tensor', ''))}",
        "source": source,
        "across": f"what enters at {source}" if source else "what the model says",
        "share": format_percent(curve.get("share")),
        "knots": known,
        "points": [(x, y) for x, y in curve.get("points", ()) if None not in (as_number(x), as_number(y))],
        "pairs": "; ".join(f"{format_figure(known[place][1])} → {format_figure(known[place][2])}" for place in places),
    }


def draw_curve(curve: Mapping[str, Any]) -> str:
    """The drawing of a curve that `view_curve` made."""
    knots, points = curve["knots"], curve["points"]
    across = [x for x, *_ in (*knots, *points)]
    up = [value for _, *values in (*knots, *points) for value in values]
    x = svg.linear_scale(min(across), max(across), _LEFT + 6, _WIDTH - _RIGHT - 6)
    y = svg.linear_scale(min(up), max(up), _HEIGHT - _BOTTOM - 6, _TOP + 6)
    model, given = ([(x(knot[0]), y(knot[place])) for knot in knots] for place in (1, 2))
    body = [
        *(
            one
            for value in svg.list_ticks(min(up), max(up), _TICKS)
            for one in _FRAME.level(y(value), format_figure(value))
        ),
        *_FRAME.base((x(value), format_figure(value)) for value in svg.list_ticks(min(across), max(across), _TICKS)),
        svg.svg_element("path", {"d": svg.line_path(model), "class": "curve model"}),
        svg.svg_element("path", {"d": svg.line_path(given), "class": "curve given"}),
        svg.svg_element("path", {"d": svg.point_path((x(a), y(b)) for a, b in points), "class": "dots inherited"}),
        svg.svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, curve["across"], "label", anchor="middle"),
    ]
    said = f"From what the model says to what the candidate gives: {curve['pairs']}"
    return svg.svg_figure(curve["identity"], (_WIDTH, _HEIGHT), "The curve", said, body)
