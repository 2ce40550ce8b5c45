"""The error of a model on a target over its studies: a line small enough for a table, and a chart with versions and verdicts."""

from __future__ import annotations

import html
import itertools
import math
from typing import TYPE_CHECKING, Any

from parityscope.report import svg
from parityscope.report.words import format_percent, shorten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WIDTH, _HEIGHT = 1120.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 78.0, 20.0, 34.0, 34.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_SPARK = (150.0, 26.0)
_MOST_VERSIONS = 12  # that are named in the chart


def draw_spark(points: Sequence[Mapping[str, Any]]) -> str:
    """The errors as a line on a logarithmic scale; empty where there are not two."""
    levels = [_level_of(point) for point in points]
    known = [level for level in levels if level is not None]
    if len(known) < 2:
        return ""
    width, height = _SPARK
    x = svg.linear_scale(0, len(points) - 1, 4, width - 4)
    y = svg.linear_scale(min(known), max(known), height - 4, 4)
    line = [None if level is None else (x(float(at)), y(level)) for at, level in enumerate(levels)]
    drawn = [svg.svg_element("path", {"d": svg.line_path(line), "class": "total"})]
    drawn.extend(
        svg.svg_element("circle", {"cx": place[0], "cy": place[1], "r": 2.5, "class": f"mark {_css_of(point)}"})
        for place, point in zip(line, points, strict=True)
        if place is not None and point["verdict"] != "within"
    )
    size = {
        "viewBox": f"0 0 {width:.0f} {height:.0f}",
        "width": f"{width:.0f}",
        "aria-hidden": "true",
        "class": "spark",
    }
    return svg.svg_element("svg", size, *drawn)


def draw_trend(points: Sequence[Mapping[str, Any]]) -> str:
    """The chart: a dot for each study, in order, with its verdict as shape and colour, and a line where the version changes."""
    levels = [_level_of(point) for point in points]
    known = [level for level in levels if level is not None]
    if not known:
        return ""
    low, high = math.floor(min(known)), max(math.ceil(max(known)), math.floor(min(known)) + 1)
    x = svg.linear_scale(0, max(1, len(points) - 1), _LEFT + 16, _WIDTH - _RIGHT - 16)
    y = svg.linear_scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    places = [None if level is None else (x(float(at)), y(level)) for at, level in enumerate(levels)]
    body = [
        *(
            one
            for exponent in svg.list_decades(low, high)
            for one in _FRAME.level(y(exponent), _format_decade(exponent))
        ),
        *_draw_versions(points, x),
        svg.svg_element("path", {"d": svg.line_path(places), "class": "total"}),
        *(_draw_point(place, point) for place, point in zip(places, points, strict=True) if place is not None),
        svg.svg_text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, "studies, oldest first", "label", anchor="middle"),
    ]
    return svg.svg_figure("trend", (_WIDTH, _HEIGHT), "Error of each study", _describe_trend(points), body)


def _draw_versions(points: Sequence[Mapping[str, Any]], x: Callable[[float], float]) -> list[str]:
    """A line before each study whose version is another than that of the study before."""
    starts = [
        0,
        *(at for at, (one, two) in enumerate(itertools.pairwise(points), 1) if one["version"] != two["version"]),
    ]
    drawn = []
    for at in starts:
        place = x(at - 0.5) if at else _LEFT + 4
        if at:
            line = {"x1": place, "x2": place, "y1": _TOP - 14, "y2": _HEIGHT - _BOTTOM, "class": "limit"}
            drawn.append(svg.svg_element("line", line))
        if len(starts) <= _MOST_VERSIONS:
            drawn.append(svg.svg_text(place + 4, _TOP - 18, shorten_name(points[at]["version"], 18), "tick"))
    return drawn


def _draw_point(place: tuple[float, float], point: Mapping[str, Any]) -> str:
    told = f"{point['created']}: {format_percent(point['error'])}, {point['verdict']}, {point['version']}"
    hover = svg.svg_element("title", {}, html.escape(told))
    css, (px, py) = _css_of(point), place
    if css == "within":
        mark = svg.svg_element("circle", {"cx": px, "cy": py, "r": 4.5, "class": "mark within"})
    elif css == "beyond":
        cross = f"M{px - 5:.1f},{py - 5:.1f}l10,10m0,-10l-10,10"
        mark = svg.svg_element("path", {"d": cross, "class": "mark beyond"})
    else:
        mark = svg.svg_element("path", {"d": f"M{px:.1f},{py - 6:.1f}l6,10h-12z", "class": "mark incomplete"})
    return svg.svg_element("g", {}, hover, mark)


def _level_of(point: Mapping[str, Any]) -> float | None:
    """The power of ten of an error; None where there is none that a logarithm has."""
    error = point["error"]
    return math.log10(error) if error is not None and 0 < error < math.inf else None


def _css_of(point: Mapping[str, Any]) -> str:
    return {"within": "within", "beyond": "beyond"}.get(str(point["verdict"]), "incomplete")


def _format_decade(exponent: int) -> str:
    """A power of ten of a ratio, as a percentage."""
    power = exponent + 2
    return f"{10.0**power:g} %" if -3 <= power <= 4 else f"{svg.format_power(10, power)} %"


def _describe_trend(points: Sequence[Mapping[str, Any]]) -> str:
    first, last = points[0], points[-1]
    return (
        f"{len(points)} studies from {first['created']} to {last['created']}: relative L2 error from"
        f" {format_percent(first['error'])} to {format_percent(last['error'])}"
    )
