"""Error against cost: every assignment that was evaluated, the Pareto front as a line, the budget as a limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report.svg import (
    Frame,
    line_path,
    linear_scale,
    list_ticks,
    point_path,
    svg_element,
    svg_figure,
    svg_text,
)
from parityscope.report.words import as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIZE = (900.0, 340.0)
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 24.0, 16.0, 48.0
_FRAME = Frame(width=_SIZE[0], height=_SIZE[1], left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_MICRO = 1e6


def draw_repair(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The drawing of a repair."""
    return {"front": _draw_front(document)}


def _draw_front(document: Mapping[str, Any]) -> str:
    """The drawing; empty where there are fewer than two points to show."""
    trail = _drawable_points(document["trail"])
    if len({time for time, _ in trail}) < 2:
        return ""
    front = _drawable_points(document["front"])
    times = [time for time, _ in trail]
    logs = [math.log10(error) for _, error in trail] + [0.0]
    x = linear_scale(min(times), max(times), _LEFT + 12, _SIZE[0] - _RIGHT - 12)
    low, high = math.floor(min(logs)), math.ceil(max(logs) + 1e-9)
    y = linear_scale(low, high, _SIZE[1] - _BOTTOM, _TOP)
    places = [(x(time), y(math.log10(error))) for time, error in front]
    body = [
        *_FRAME.levels(low, high, y),
        *_FRAME.base(
            ((x(value), f"{value:g}") for value in list_ticks(min(times), max(times), most=8)),
            "modelled time of one inference, microseconds",
        ),
        svg_element(
            "path", {"d": line_path([(_LEFT, y(0)), (_SIZE[0] - _RIGHT, y(0))]), "class": "edge-of limit-line"}
        ),
        svg_text(_SIZE[0] - _RIGHT, y(0) - 5, "the budget", "small", anchor="end"),
        svg_element("path", {"d": point_path((x(t), y(math.log10(e))) for t, e in trail), "class": "dots tried"}),
        svg_element("path", {"d": line_path(places), "class": "line front"}),
        *(svg_text(px + 7, py - 7, str(place), "small strong") for place, (px, py) in enumerate(places, 1)),
        *_draw_chosen(document["chosen"], x, y),
    ]
    return svg_figure(
        "front",
        _SIZE,
        "Error against modelled time",
        f"{len(trail)} assignments; the {len(front)} that no other beats are joined and numbered",
        body,
    )


def _drawable_points(held: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(microseconds, error in units of the budget) of those that can stand on a logarithmic axis."""
    found = [((as_number(one["seconds"]) or 0.0) * _MICRO, as_number(one["excess"]) or 0.0) for one in held]
    return [(time, error) for time, error in found if math.isfinite(error) and error > 0]


def _draw_chosen(chosen: Mapping[str, Any] | None, x: Any, y: Any) -> list[str]:
    points = _drawable_points([chosen]) if chosen is not None else []
    return [
        svg_element("circle", {"cx": x(time), "cy": y(math.log10(error)), "r": 8, "class": "chosen"})
        for time, error in points
    ]
