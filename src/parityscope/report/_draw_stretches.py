"""How much of the output error has entered the network up to each cut: a staircase from 0 to 100 %.

A flat stretch contributes nothing; a step is a contribution. Shares sum to one exactly, and a step down undoes error.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from parityscope.report import svg
from parityscope.report.words import format_percent, shorten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WIDTH, _HEIGHT = 1120.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 112.0, 16.0, 46.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_X = (_LEFT + 10, _WIDTH - _RIGHT - 10)
# Steps that get a name: the reader looks for the few that matter.
_NAMED = 4
_WORTH_A_NAME = 0.05


def draw_stretches(stretches: Mapping[str, Any]) -> str:
    """The chart of `view["figures"]["stretches"]` as SVG; empty when nothing was attributed."""
    steps = stretches["steps"]
    if not steps:
        return ""
    levels = [0.0]
    for step in steps:
        levels.append(levels[-1] + step["share"])
    low, high = min(0.0, *levels), max(1.0, *levels)
    x = svg.linear_scale(0, stretches["last"], *_X)
    y = svg.linear_scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    body = [
        *(one for level in svg.list_ticks(low, high, 5) for one in _FRAME.level(y(level), f"{level:.0%}")),
        *_FRAME.base(svg.at_indices(0, stretches["last"], x), "position in the network (topological index)"),
        _draw_stairs(steps, levels, x, y),
        *_draw_names(steps, levels, x, y),
    ]
    return svg.svg_figure(
        "stretches", (_WIDTH, _HEIGHT), "Contribution to the output error", _describe_chart(steps), body
    )


def _draw_stairs(
    steps: Sequence[Mapping[str, Any]],
    levels: Sequence[float],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    points = [(x(steps[0]["first"]), y(0.0))]
    for step, level in zip(steps, levels[1:], strict=True):
        # Inside a stretch nothing is known but its sum: the line goes straight from cut to cut.
        points.append((x(step["last"]), y(level)))
    return svg.svg_element("path", {"d": svg.line_path(points), "class": "stairs"})


def _draw_names(
    steps: Sequence[Mapping[str, Any]],
    levels: Sequence[float],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    leading = sorted(range(len(steps)), key=lambda place: -abs(steps[place]["share"]))[:_NAMED]
    drawn = []
    for place in leading:
        step = steps[place]
        if abs(step["share"]) < _WORTH_A_NAME:
            continue
        at = x(step["last"]), y((levels[place] + levels[place + 1]) / 2)
        side, anchor = (12, "start") if at[0] < _WIDTH * 0.6 else (-12, "end")
        label = f"{format_percent(step['share'])} {shorten_name(step['name'], 60)}"
        hover = svg.svg_element("title", {}, html.escape(f"{format_percent(step['share'])} {step['name']}"))
        drawn.append(svg.svg_element("circle", {"cx": at[0], "cy": at[1], "r": 4, "class": "ring"}, hover))
        drawn.append(svg.svg_text(at[0] + side, at[1] + 4, label, "note", anchor=anchor))
    return drawn


def _describe_chart(steps: Sequence[Mapping[str, Any]]) -> str:
    """The chart in words."""
    leading = sorted(steps, key=lambda step: -abs(step["share"]))[:_NAMED]
    return "Shares of the output error: " + "; ".join(
        f"{step['name']} {format_percent(step['share'])}" for step in leading
    )
