"""Histograms by power of two: values of the reference against the candidate, and absolute errors.

Bin e holds 2^e <= |x| < 2^(e+1); negative values lie mirrored on the left, zeros in the middle. Counts are on a log
axis because the few outliers decide whether a format's range suffices. Range limits are those of IEEE 754 binary16
(largest 65504 < 2^16, smallest normal 2^-14, smallest subnormal 2^-24) and bfloat16 (< 2^128, normal from 2^-126).
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from parityscope.report import svg

_Bins = Sequence[tuple[int, int]]

_WIDTH = 540.0
_LEFT, _RIGHT, _BOTTOM = 46.0, 10.0, 42.0
_VALUES_HEIGHT, _VALUES_TOP = 250.0, 46.0
_FRAME = svg.Frame(width=_WIDTH, height=_VALUES_HEIGHT, left=_LEFT, right=_RIGHT, top=_VALUES_TOP, bottom=_BOTTOM)
_ERRORS_HEIGHT, _ERRORS_TOP = 190.0, 12.0
# Bins on one side at most; those below are counted into the lowest one, which is then labelled with "≤".
_MOST_BINS = 40
_LIMITS = ((16, "FP16 max"), (-14, "FP16 subnormal"), (-24, "FP16 zero"), (128, "BF16 max"), (-126, "BF16 subnormal"))
# The end of FP16 is shown when values come this near to it (in powers of two), though none be beyond.
_NEAR = 4


def draw_values(identity: str, name: str, sides: Sequence[Mapping[str, Any]]) -> str:
    """Both sides' values; the reference is an area, the candidate a line over it."""
    exponents = [e for side in sides for sign in ("negative", "positive") for e, _ in side["bins"][sign]]
    if not exponents:
        return ""
    low, high, cut = _bin_range(exponents, limits=True)
    signed = any(side["bins"]["negative"] for side in sides)
    slots = _list_slots(low, high, signed=signed)
    width = (_WIDTH - _LEFT - _RIGHT) / len(slots)
    counts = {side["side"]: _fill_slots(side["bins"], slots, low) for side in sides}
    y = _counts_axis(max(max(values) for values in counts.values()), _VALUES_TOP, _VALUES_HEIGHT)
    base = _VALUES_HEIGHT - _BOTTOM
    body = [*_draw_grid(max(max(values) for values in counts.values()), y), *_draw_limits(slots, width, low, high)]
    for side, values in counts.items():
        outline = _step_outline([y(value) for value in values], width, base)
        body.append(svg.svg_element("path", {"d": outline, "class": f"values {side}"}))
    body.extend(_draw_exponents(slots, width, base, low if cut else None))
    body.append(svg.svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _VALUES_HEIGHT - 6, "value", "label", anchor="middle"))
    body.extend(_draw_hover_bars(slots, counts, width, (_VALUES_TOP, base)))
    said = f"Counts by power of two from {svg.format_power(2, low)} to {svg.format_power(2, high + 1)} of {name}."
    return svg.svg_figure(identity, (_WIDTH, _VALUES_HEIGHT), "Values by power of two", said, body)


def draw_errors(identity: str, name: str, error: _Bins) -> str:
    """The absolute errors |candidate - reference|."""
    if not error:
        return ""
    low, high, cut = _bin_range([exponent for exponent, _ in error], limits=False)
    slots: list[tuple[int, int]] = [(1, exponent) for exponent in range(low, high + 1)]
    width = (_WIDTH - _LEFT - _RIGHT) / len(slots)
    values = _fill_slots({"negative": (), "zero": 0, "positive": error}, slots, low)
    y = _counts_axis(max(values), _ERRORS_TOP, _ERRORS_HEIGHT)
    base = _ERRORS_HEIGHT - _BOTTOM
    body = [
        *_draw_grid(max(values), y),
        svg.svg_element(
            "path", {"d": _step_outline([y(value) for value in values], width, base), "class": "values error"}
        ),
        *_draw_exponents(slots, width, base, low if cut else None),
        svg.svg_text(
            (_LEFT + _WIDTH - _RIGHT) / 2, _ERRORS_HEIGHT - 6, "|candidate - reference|", "label", anchor="middle"
        ),
        *_draw_hover_bars(slots, {"errors": values}, width, (_ERRORS_TOP, base)),
    ]
    said = (
        f"Counts of absolute errors by power of two from {svg.format_power(2, low)} to "
        f"{svg.format_power(2, high + 1)} of {name}."
    )
    return svg.svg_figure(identity, (_WIDTH, _ERRORS_HEIGHT), "Absolute errors by power of two", said, body)


def _bin_range(exponents: Sequence[int], *, limits: bool) -> tuple[int, int, bool]:
    """Lowest and highest bin shown, and whether elements below the lowest are counted into it."""
    high = max(exponents)
    if limits and 16 - _NEAR <= high < 16:
        high = 16
    low = max(min(exponents), high - _MOST_BINS + 1)
    return low, high, min(exponents) < low


def _list_slots(low: int, high: int, *, signed: bool) -> list[tuple[int, int]]:
    """(sign, exponent) of every bin from left to right; sign 0 is the bin of zeros."""
    positive = [(1, exponent) for exponent in range(low, high + 1)]
    return [*[(-1, e) for _, e in reversed(positive)], (0, 0), *positive] if signed else [(0, 0), *positive]


def _fill_slots(bins: Mapping[str, Any], slots: Sequence[tuple[int, int]], low: int) -> list[int]:
    counted: dict[tuple[int, int], int] = {(0, 0): bins["zero"]}
    for sign, key in ((-1, "negative"), (1, "positive")):
        for exponent, n in bins[key]:
            slot = (sign, max(exponent, low))
            counted[slot] = counted.get(slot, 0) + n
    return [counted.get(slot, 0) for slot in slots]


def _counts_axis(most: int, top: float, height: float) -> Any:
    """The y of a count: logarithm of count + 1, so that one element shows and none lies on the axis."""
    scale = svg.linear_scale(0.0, math.log10(most + 1) or 1.0, height - _BOTTOM, top)
    return lambda n: scale(math.log10(n + 1))


def _draw_grid(most: int, y: Any) -> list[str]:
    drawn: list[str] = []
    for exponent in range(len(str(most))):
        label = str(10**exponent) if exponent < 3 else svg.format_power(10, exponent)
        drawn += _FRAME.level(y(10**exponent), label, gap=6)
    return drawn


def _step_outline(heights: Sequence[float], width: float, base: float) -> str:
    points: list[tuple[float, float] | None] = [(_LEFT, base)]
    for i, height in enumerate(heights):
        points.extend([(_LEFT + i * width, height), (_LEFT + (i + 1) * width, height)])
    return svg.line_path([*points, (_LEFT + len(heights) * width, base)])


def _draw_exponents(slots: Sequence[tuple[int, int]], width: float, base: float, cut: int | None) -> list[str]:
    """Labels under the bins' left edges, thinned to about one every 44 pixels; zeros are always labelled."""
    every = max(1, math.ceil(44 / width))
    drawn = [svg.svg_element("line", {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": base, "y2": base, "class": "axis"})]
    zero = next((i for i, (sign, _) in enumerate(slots) if sign == 0), -every)
    for i, (sign, exponent) in enumerate(slots):
        if sign == 0:
            drawn.append(svg.svg_text(_LEFT + (i + 0.5) * width, base + 15, "0", "tick", anchor="middle"))
        elif exponent % every == 0 and abs(i - zero) * width >= 30:
            edge = i if sign > 0 else i + 1
            label = f"{'≤' if exponent == cut else ''}{'-' if sign < 0 else ''}{svg.format_power(2, exponent)}"
            drawn.append(svg.svg_text(_LEFT + edge * width, base + 15, label, "tick", anchor="middle"))
    return drawn


def _draw_limits(slots: Sequence[tuple[int, int]], width: float, low: int, high: int) -> list[str]:
    """Lines where a format's range ends, on both signs, each labelled once in a row of its own."""
    drawn: list[str] = []
    shown = [(exponent, label) for exponent, label in _LIMITS if low < exponent <= high]
    for row, (exponent, label) in enumerate(shown):
        top = _VALUES_TOP - 6 - 13 * (row % 3)
        for i, (sign, of) in enumerate(slots):
            if of != exponent or sign == 0:
                continue
            x = _LEFT + (i if sign > 0 else i + 1) * width
            drawn.append(
                svg.svg_element("line", {"x1": x, "x2": x, "y1": top, "y2": _VALUES_HEIGHT - _BOTTOM, "class": "limit"})
            )
            if sign > 0:
                near_end = x > _WIDTH - 110
                drawn.append(
                    svg.svg_text(
                        x + (-4 if near_end else 4), top + 8, label, "limit", anchor="end" if near_end else "start"
                    )
                )
    return drawn


def _draw_hover_bars(
    slots: Sequence[tuple[int, int]], counts: Mapping[str, Sequence[int]], width: float, rows: tuple[float, float]
) -> list[str]:
    """An invisible bar over each bin that is not empty, whose title says its counts."""
    drawn = []
    for i, (sign, exponent) in enumerate(slots):
        if not any(values[i] for values in counts.values()):
            continue
        where = "zero" if sign == 0 else f"{'-' if sign < 0 else ''}{svg.format_power(2, exponent)}"
        said = ", ".join(f"{values[i]:,} {side}" for side, values in counts.items())
        attributes = {
            "x": _LEFT + i * width,
            "y": rows[0],
            "width": width,
            "height": rows[1] - rows[0],
            "class": "hover",
        }
        drawn.append(svg.svg_element("rect", attributes, svg.svg_element("title", {}, html.escape(f"{where}: {said}"))))
    return drawn
