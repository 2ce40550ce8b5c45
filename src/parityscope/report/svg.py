"""Plain-Python SVG: elements as escaped strings, scales as functions, axis ticks. Colours are CSS classes of the page.

Every drawing is `svg_figure(...)`: a viewBox (it scales with the page), a title and a description for screen readers.
Coordinates are CSS pixels at full width, y downwards, written with at most one decimal.
"""

from __future__ import annotations

import html
import math
from itertools import groupby
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# How far a drawing may shrink before it scrolls instead: 12-pixel labels stay at 9 pixels, the least that can be read.
_LEAST = 0.75
# Of a line's points over one CSS pixel all that can be told apart, and of dots as many as a reader can count; chosen.
_LINE, _DOTS = 4, 6
_LANE = 28.0  # of what has no place on a log axis
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def svg_element(tag: str, attributes: Mapping[str, object], *children: str) -> str:
    """`<tag ...>children</tag>`; attribute values are escaped, children are SVG already, floats are rounded."""
    written = "".join(f' {name}="{html.escape(_format_value(value))}"' for name, value in attributes.items())
    return f"<{tag}{written}>{''.join(children)}</{tag}>" if children else f"<{tag}{written}/>"


def svg_text(x: float, y: float, content: str, css: str = "", *, anchor: str = "start") -> str:
    """A line of text whose baseline starts, is centred or ends at (x, y)."""
    attributes: dict[str, object] = {"x": x, "y": y, "text-anchor": anchor}
    if css:
        attributes["class"] = css
    return svg_element("text", attributes, html.escape(content))


def svg_figure(identity: str, size: tuple[float, float], title: str, description: str, body: Iterable[str]) -> str:
    """A whole drawing; `identity` is unique on the page (its title and description are referred to by it)."""
    width, height = size
    attributes = {
        "viewBox": f"0 0 {_format_value(width)} {_format_value(height)}",
        "role": "img",
        "aria-labelledby": f"{identity}-title {identity}-desc",
        "id": identity,
        "style": f"max-width: {_format_value(width)}px; min-width: {_format_value(width * _LEAST)}px",
    }
    head = svg_element("title", {"id": f"{identity}-title"}, html.escape(title))
    about = svg_element("desc", {"id": f"{identity}-desc"}, html.escape(description))
    return svg_element("svg", attributes, head, about, *body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where a chart is drawn: its size, and the room on each side of it."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def level(self, at: float, label: str, gap: float = 8) -> list[str]:
        """A line across at a height, and its label beside it."""
        line = {"x1": self.left, "x2": self.width - self.right, "y1": at, "y2": at, "class": "grid"}
        return [svg_element("line", line), svg_text(self.left - gap, at + 4, label, "tick", anchor="end")]

    def levels(self, low: int, high: int, y: Callable[[float], float]) -> list[str]:
        """A line at each power of ten; `y` takes exponents."""
        powers = list_decades(low, high)
        return [one for power in powers for one in self.level(y(power), format_power(10, power))]

    def base(self, marks: Iterable[tuple[float, str]], title: str = "") -> list[str]:
        """The axis along the bottom, labels at places of it, and what it is about."""
        end, at = self.width - self.right, self.height - self.bottom
        drawn = [svg_element("line", {"x1": self.left, "x2": end, "y1": at, "y2": at, "class": "axis"})]
        drawn += [svg_text(place, at + 17, label, "tick", anchor="middle") for place, label in marks]
        if title:
            drawn.append(svg_text((self.left + end) / 2, self.height - 8, title, "label", anchor="middle"))
        return drawn

    def error_scale(self, values: Iterable[float], decades: int) -> tuple[Callable[[float], float], int, int]:
        """The height of an error, and the powers of ten at both ends, so many `decades` at most below the largest.

        Exact zeros and what is not finite have no place on a log axis: each gets a lane of its own, below and above.
        """
        shown = [value for value in values if math.isfinite(value) and value > 0]
        high = math.ceil(math.log10(max(shown, default=1.0)) + 0.05)
        low = min(high - 1, max(high - decades, math.floor(math.log10(min(shown, default=1e-8)))))
        scale = linear_scale(low, high, self.height - self.bottom - _LANE, self.top + _LANE)
        zero, above = self.height - self.bottom - _LANE / 2 + 3, self.top + _LANE / 2 - 3

        def y(value: float) -> float:
            if not math.isfinite(value):
                return above
            return zero if value <= 0 else scale(max(math.log10(value), low))

        return y, low, high


def at_indices(low: float, high: float, x: Callable[[float], float]) -> Iterator[tuple[float, str]]:
    """Labels of some whole numbers between two, at their places."""
    for index in list_ticks(low, high, 12):
        if index.is_integer() and index >= 0:
            yield x(index), f"{index:,.0f}"


def linear_scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """The line through (low, start) and (high, end); everything is in the middle when low = high."""
    if high == low:
        return lambda _: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def line_path(points: Sequence[tuple[float, float] | None]) -> str:
    """Path data of a line through `points`, broken at each None."""
    parts = []
    pen = "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        parts.append(f"{pen}{_format_value(point[0])},{_format_value(point[1])}")
        pen = "L"
    return "".join(parts)


def thin_line(points: Sequence[tuple[float, float] | None]) -> list[tuple[float, float] | None]:
    """The line that looks the same: of the points over one unit of x the first, the lowest, the highest and the last."""
    kept: list[tuple[float, float] | None] = []
    for _, column in groupby(points, lambda point: None if point is None else math.floor(point[0])):
        held = list(column)
        known = [point for point in held if point is not None]
        if len(held) <= _LINE or not known:
            kept.extend(held)
            continue
        ys = [point[1] for point in known]
        places = {0, ys.index(min(ys)), ys.index(max(ys)), len(ys) - 1}
        kept.extend(known[place] for place in sorted(places))
    return kept


def thin_dots(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of the dots over one unit of x at most some, spread from the lowest to the highest: more would lie on one another."""
    kept: list[tuple[float, float]] = []
    for _, column in groupby(points, lambda point: math.floor(point[0])):
        held = list(column)
        if len(held) > _DOTS:
            ranked = sorted(held, key=lambda point: point[1])
            held = [ranked[round(place * (len(ranked) - 1) / (_DOTS - 1))] for place in range(_DOTS)]
        kept.extend(held)
    return kept


def point_path(points: Iterable[tuple[float, float]]) -> str:
    """Path data of dots: segments of no length, which the stroke's caps make visible. One element for any number."""
    return "".join(f"M{_format_value(x)},{_format_value(y)}h0" for x, y in points)


def list_decades(low: int, high: int) -> list[int]:
    """Exponents of ten from `low` to `high`, thinned so that about nine remain."""
    step = max(1, math.ceil((high - low) / 9))
    return [exponent for exponent in range(low, high + 1) if exponent % step == 0]


def list_ticks(low: float, high: float, most: int = 10) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten) between `low` and `high`, at most about `most`."""
    if high <= low:
        return [low]
    raw = (high - low) / most
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(base * factor for factor in (1, 2, 5, 10) if base * factor >= raw)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def format_power(base: int, exponent: int) -> str:
    """A power with its exponent raised."""
    return f"{base}{str(exponent).translate(_SUPERSCRIPTS)}"


def spread_apart(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """`positions` moved as little as a single sweep each way allows, to lie `gap` apart within [low, high]."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    moved = list(positions)
    floor = low
    for i in order:
        moved[i] = max(moved[i], floor)
        floor = moved[i] + gap
    ceiling = high
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved


def _format_value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
