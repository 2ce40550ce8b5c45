"""Error along the depth of the network, or along repeated calls: total, introduced and inherited against the index, log scale.

Exact zeros and non-finite errors have no place on a log axis: each gets a lane of its own, below and above.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from parityscope.light_dataclasses import dataclass
from parityscope.report import svg
from parityscope.report.words import format_figure, shorten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WIDTH, _HEIGHT = 1120.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 112.0, 16.0, 46.0
# Decades shown below the largest error at most: 16 is the whole range of float64's precision.
_DECADES = 16
# With more points than this the dots are drawn smaller (chosen: about one a pixel).
_DENSE = 1000
# The room that the words beside the first suspect take, and how far they are lifted over another ring there.
_WORDS, _LIFT = 320.0, 34.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_X = (_LEFT + 10, _WIDTH - _RIGHT - 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """What an index of a chart is: the chart's name on the page, its title, what stands at the axis, its points in words."""

    identity: str
    title: str
    axis: str
    points: str


_NETWORK = Along(
    identity="depth",
    title="Error along the depth of the network",
    axis="position in the network (topological index)",
    points="tensors in graph order",
)
CALLS = Along(identity="calls", title="Error against the call", axis="call", points="calls")


def draw_depth(depth: Mapping[str, Any], along: Along = _NETWORK) -> str:
    """The chart of `view["figures"]["depth"]`, or of "calls", as SVG; empty when there is nothing to show."""
    points = depth["points"]
    if not points:
        return ""
    x, y, low, high = _make_scales(depth)
    body = [
        *_draw_grid(points, x, y, (low, high), along.axis),
        *_draw_floor(depth, x, y),
        *_draw_expected(depth, x, y),
        _draw_line(points, x, y),
        _draw_dots(points, "inherited", x, y),
        _draw_dots(points, "introduced", x, y),
        *_draw_suspects(depth["suspects"], x, y),
    ]
    return svg.svg_figure(along.identity, (_WIDTH, _HEIGHT), along.title, _describe_chart(depth, along.points), body)


def axis_of_indices(depth: Mapping[str, Any]) -> list[float]:
    """Where index 0 is in the drawing, and how much an index is, for the page's tooltip; empty when there is nothing to show."""
    if not depth["points"]:
        return []
    x, *_ = _make_scales(depth)
    return [round(x(0.0), 3), x(1.0) - x(0.0)]


def _make_scales(depth: Mapping[str, Any]) -> tuple[Callable[[float], float], Callable[[float], float], int, int]:
    """The x of an index, y of an error, and the exponents of ten at the ends of the y axis."""
    indices = [point["index"] for point in depth["points"]]
    errors = [point[key] for point in depth["points"] for key in ("total", "introduced", "inherited")]
    errors += [*depth["floor"], *(value for expected in depth["expected"] for value in expected["values"])]
    y, low, high = _FRAME.error_scale((value for value in errors if value is not None), _DECADES)
    return svg.linear_scale(min(indices), max(indices), *_X), y, low, high


def _draw_grid(
    points: Sequence[Mapping[str, Any]],
    x: Callable[[float], float],
    y: Callable[[float], float],
    ends: tuple[int, int],
    axis: str,
) -> list[str]:
    drawn = _FRAME.levels(*ends, lambda exponent: y(10.0**exponent))
    lanes = [(0.0, "0"), *([(math.inf, "NaN, ∞")] if any(_is_nonfinite_point(point) for point in points) else [])]
    drawn.extend(svg.svg_text(_LEFT - 8, y(value) + 4, label, "tick", anchor="end") for value, label in lanes)
    return drawn + _FRAME.base(svg.at_indices(points[0]["index"], max(point["index"] for point in points), x), axis)


def _is_nonfinite_point(point: Mapping[str, Any]) -> bool:
    values = (point[key] for key in ("total", "introduced", "inherited"))
    return any(value is not None and not math.isfinite(value) for value in values)


def _points_of_series(
    points: Sequence[Mapping[str, Any]],
    values: Sequence[float | None],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[tuple[float, float] | None]:
    return [
        None if value is None else (x(point["index"]), y(value)) for point, value in zip(points, values, strict=True)
    ]


def _drawn_line(points: Sequence[tuple[float, float] | None]) -> str:
    return svg.line_path(svg.thin_line(points))


def _draw_floor(depth: Mapping[str, Any], x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """The FP32 noise that `introduced` is held against, as an area down to the axis."""
    found = [point for point in _points_of_series(depth["points"], depth["floor"], x, y) if point is not None]
    if len(found) < 2:
        return []
    base = _HEIGHT - _BOTTOM
    outline = [(found[0][0], base), *found, (found[-1][0], base)]
    return [svg.svg_element("path", {"d": _drawn_line(outline) + "Z", "class": "floor"})]


def _draw_expected(depth: Mapping[str, Any], x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """The error that each format is expected to cause, labelled at the right end."""
    drawn, ends = [], []
    for expected in depth["expected"]:
        series = _points_of_series(depth["points"], expected["values"], x, y)
        found = [point for point in series if point is not None]
        if not found:
            continue
        css = "expected declared" if expected["declared"] else "expected"
        drawn.append(svg.svg_element("path", {"d": _drawn_line(found), "class": css}))
        ends.append((found[-1][1], expected.get("label") or f"{expected['format']} expected", css))
    places = svg.spread_apart([end[0] for end in ends], 14, _TOP, _HEIGHT - _BOTTOM)
    for place, (_, label, css) in zip(places, ends, strict=True):
        drawn.append(svg.svg_text(_X[1] + 8, place + 4, label, f"tick {css}"))
    return drawn


def _draw_line(points: Sequence[Mapping[str, Any]], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """The total error; the line breaks where there is none on a log scale, and dots stand where no line is."""
    onscale = [point["total"] if _is_on_scale(point["total"]) else None for point in points]
    around = zip([None, *onscale[:-1]], onscale, [*onscale[1:], None], strict=True)
    joined = [here is not None and (before is not None or after is not None) for before, here, after in around]
    alone = [None if drawn else point["total"] for point, drawn in zip(points, joined, strict=True)]
    dots = [at for at in _points_of_series(points, alone, x, y) if at is not None]
    line = svg.svg_element("path", {"d": _drawn_line(_points_of_series(points, onscale, x, y)), "class": "total"})
    return line + (
        svg.svg_element("path", {"d": svg.point_path(svg.thin_dots(dots)), "class": "dots total"}) if dots else ""
    )


def _is_on_scale(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _draw_dots(
    points: Sequence[Mapping[str, Any]], key: str, x: Callable[[float], float], y: Callable[[float], float]
) -> str:
    found = [point for point in _points_of_series(points, [point[key] for point in points], x, y) if point is not None]
    css = f"dots {key} dense" if len(points) > _DENSE else f"dots {key}"
    return svg.svg_element("path", {"d": svg.point_path(svg.thin_dots(found)), "class": css})


def _draw_suspects(
    suspects: Sequence[Mapping[str, Any]], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    """A ring and its rank for each; the first one also gets its name and its two errors."""
    drawn: list[str] = []
    placed = [(one, (x(one["index"]), y(one["introduced"]))) for one in suspects if one["index"] is not None]
    for suspect, at in placed:
        hover = svg.svg_element("title", {}, html.escape(f"{suspect['name']} {suspect['text']}"))
        drawn.append(svg.svg_element("circle", {"cx": at[0], "cy": at[1], "r": 8, "class": "ring"}, hover))
        side = 1 if at[0] < _WIDTH * 0.55 else -1
        anchor = "start" if side > 0 else "end"
        if suspect["rank"] == 1:
            name = shorten_name(suspect["name"], 60)
            lift = (
                _LIFT
                if any(_stands_in_the_way(at, side, other) for one, other in placed if one is not suspect)
                else 0.0
            )
            drawn.append(svg.svg_text(at[0] + side * 14, at[1] - 1 - lift, f"1 {name}", "note strong", anchor=anchor))
            drawn.append(svg.svg_text(at[0] + side * 14, at[1] + 14 - lift, suspect["text"], "note", anchor=anchor))
        else:
            # The second above its ring, the third below: suspects are often neighbours.
            offset = -12 if suspect["rank"] % 2 == 0 else 20
            drawn.append(svg.svg_text(at[0], at[1] + offset, str(suspect["rank"]), "note", anchor="middle"))
    return drawn


def _stands_in_the_way(at: tuple[float, float], side: int, other: tuple[float, float]) -> bool:
    """Whether another ring lies where the words beside the first one would stand."""
    return 0 <= side * (other[0] - at[0]) < _WORDS and -_LIFT / 2 < other[1] - at[1] < _LIFT


def _describe_chart(depth: Mapping[str, Any], points: str) -> str:
    """The chart in words."""
    totals = [point["total"] for point in depth["points"] if point["total"] is not None]
    worst = max((math.inf if math.isnan(value) else value for value in totals), default=0.0)
    said = [f"{len(depth['points'])} {points}; the largest total relative L2 error is {format_figure(worst)}."]
    said.extend(f"Suspect {suspect['rank']}, {suspect['name']}, {suspect['text']}." for suspect in depth["suspects"])
    return " ".join(said)
