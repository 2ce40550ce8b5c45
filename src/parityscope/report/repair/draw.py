"""Error against cost: every assignment that was evaluated, the Pareto front as a line, the budget as a limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report.svg import decades, element, figure, line_path, linear, point_path, power, text, ticks
from parityscope.report.words import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["draw_front"]

_SIZE = (900.0, 340.0)
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 24.0, 16.0, 48.0
_MICRO = 1e6


def draw_front(document: Mapping[str, Any]) -> str:
    """The drawing; empty where there are fewer than two points to show."""
    trail = _points(document["trail"])
    if len({time for time, _ in trail}) < 2:
        return ""
    front = _points(document["front"])
    times = [time for time, _ in trail]
    logs = [math.log10(error) for _, error in trail] + [0.0]
    x = linear(min(times), max(times), _LEFT + 12, _SIZE[0] - _RIGHT - 12)
    low, high = math.floor(min(logs)), math.ceil(max(logs) + 1e-9)
    y = linear(low, high, _SIZE[1] - _BOTTOM, _TOP)
    places = [(x(time), y(math.log10(error))) for time, error in front]
    body = [
        *_grid(x, y, (min(times), max(times)), (low, high)),
        element("path", {"d": line_path([(_LEFT, y(0)), (_SIZE[0] - _RIGHT, y(0))]), "class": "edge-of limit-line"}),
        text(_SIZE[0] - _RIGHT, y(0) - 5, "the budget", "small", anchor="end"),
        element("path", {"d": point_path((x(t), y(math.log10(e))) for t, e in trail), "class": "dots tried"}),
        element("path", {"d": line_path(places), "class": "line front"}),
        *(text(px + 7, py - 7, str(place), "small strong") for place, (px, py) in enumerate(places, 1)),
        *_chosen(document["chosen"], x, y),
    ]
    return figure(
        "front",
        _SIZE,
        "Error against modelled time",
        f"{len(trail)} assignments; the {len(front)} that no other beats are joined and numbered",
        body,
    )


def _points(held: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(microseconds, error in units of the budget) of those that can stand on a logarithmic axis."""
    found = [((number(one["seconds"]) or 0.0) * _MICRO, number(one["excess"]) or 0.0) for one in held]
    return [(time, error) for time, error in found if math.isfinite(error) and error > 0]


def _grid(x: Any, y: Any, times: tuple[float, float], decade: tuple[int, int]) -> list[str]:
    bottom = _SIZE[1] - _BOTTOM
    parts = []
    for exponent in decades(*decade):
        parts.append(
            element("path", {"d": line_path([(_LEFT, y(exponent)), (_SIZE[0] - _RIGHT, y(exponent))]), "class": "grid"})
        )
        parts.append(text(_LEFT - 8, y(exponent) + 4, power(10, exponent), "tick", anchor="end"))
    marks = ticks(*times, most=8)
    parts.extend(text(x(value), bottom + 18, f"{value:g}", "tick", anchor="middle") for value in marks)
    middle = (_LEFT + _SIZE[0] - _RIGHT) / 2
    parts.append(text(middle, _SIZE[1] - 8, "modelled time of one inference, microseconds", "label", anchor="middle"))
    return parts


def _chosen(chosen: Mapping[str, Any] | None, x: Any, y: Any) -> list[str]:
    points = _points([chosen]) if chosen is not None else []
    return [
        element("circle", {"cx": x(time), "cy": y(math.log10(error)), "r": 8, "class": "chosen"})
        for time, error in points
    ]
