"""Two drawings: every sample of a number before and after, joined by a line; and the latencies of both sides as dots.

Errors are on a log axis with lanes of their own for exact zeros (below) and for infinity (above); other numbers are on a
linear one, infinities at its ends. A line's colour says whether the sample got better or worse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report import svg
from parityscope.report.words import as_number, format_figure
from parityscope.verification.quantities import direction_of_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_WIDTH, _HEIGHT = 520.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 30.0, 16.0, 34.0
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_LANE = 24.0
_DECADES = 14  # shown below the largest error at most
_AT = (_LEFT + 70, _WIDTH - _RIGHT - 70)  # of before and of after
_ROW = 64.0


def draw_verification(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The drawings of a verification: each quantity, sample by sample, and the latency."""
    return {
        "pairs": [_draw_pairs(one, place) for place, one in enumerate(document["quantities"])],
        "latency": _draw_latency(document["latency"]) if document["latency"] else "",
    }


def _draw_pairs(quantity: Mapping[str, Any], place: int) -> str:
    """Before and after of every sample; empty where the number has no meaning for single samples."""
    pairs = [
        (before, after)
        for one in zip(quantity["per_sample_before"], quantity["per_sample_after"], strict=True)
        if (before := as_number(one[0])) is not None and (after := as_number(one[1])) is not None
        if not (math.isnan(before) or math.isnan(after))
    ]
    if not pairs:
        return ""
    values = [value for pair in pairs for value in pair]
    y, grid = _log_scale(values) if quantity["kind"] == "output" else _linear_scale(values)
    body = list(grid)
    for css, better in (("same", 0), ("worse", -1), ("better", 1)):
        chosen = [pair for pair in pairs if direction_of_change(quantity["kind"], quantity["better"], *pair) == better]
        lines = "".join(svg.line_path([(_AT[0], y(before)), (_AT[1], y(after))]) for before, after in chosen)
        dots = svg.point_path(
            [point for before, after in chosen for point in ((_AT[0], y(before)), (_AT[1], y(after)))]
        )
        if chosen:
            body.append(svg.svg_element("path", {"d": lines, "class": f"join {css}"}))
            body.append(svg.svg_element("path", {"d": dots, "class": f"dots {css}"}))
    for at, label in zip(_AT, ("before", "after"), strict=True):
        body.append(svg.svg_text(at, _HEIGHT - 10, label, "label", anchor="middle"))
    title = f"{quantity['title']} of every sample"
    counts = f"{quantity['improved']} samples got better, {quantity['worsened']} worse, {quantity['equal']} are equal"
    return svg.svg_figure(f"pairs-{place}", (_WIDTH, _HEIGHT), title, f"{counts}.", body)


def _draw_latency(latency: Mapping[str, Any]) -> str:
    """Every run of both sides as a dot, with the median and the 95th percentile marked."""
    runs = {name: [float(one) * 1000 for one in latency[name]["seconds"]] for name in ("before", "after")}
    every = [one for side in runs.values() for one in side]
    width, height = 1120.0, 2 * _ROW + 50
    x = svg.linear_scale(0.0, max(every) * 1.02, _LEFT, width - _RIGHT)
    body = []
    for tick in svg.list_ticks(0.0, max(every)):
        body.append(
            svg.svg_element("line", {"x1": x(tick), "x2": x(tick), "y1": 8.0, "y2": height - 38, "class": "grid"})
        )
        body.append(svg.svg_text(x(tick), height - 22, format_figure(tick), "tick", anchor="middle"))
    for row, (name, seconds) in enumerate(runs.items()):
        middle = 8 + _ROW * (row + 0.5)
        # Runs are spread over the height of the row in their order: a drift shows as a slant.
        dots = svg.point_path(
            (x(one), middle - _ROW * 0.36 + _ROW * 0.72 * at / max(1, len(seconds) - 1))
            for at, one in enumerate(seconds)
        )
        body.append(svg.svg_text(_LEFT - 10, middle + 4, name, "tick", anchor="end"))
        body.append(svg.svg_element("path", {"d": dots, "class": f"dots {name}"}))
        for key, css in (("median", "median"), ("p95", "p95")):
            at = x(float(latency[name][key]) * 1000)
            line = {"x1": at, "x2": at, "y1": middle - _ROW * 0.42, "y2": middle + _ROW * 0.42, "class": css}
            body.append(svg.svg_element("line", line))
    body.append(svg.svg_text((_LEFT + width) / 2, height - 4, "milliseconds a run", "label", anchor="middle"))
    said = [f"{name}: median {format_figure(float(latency[name]['median']) * 1000)} ms" for name in runs]
    return svg.svg_figure("latency-runs", (width, height), "Latency of every run", "; ".join(said) + ".", body)


def _log_scale(values: Sequence[float]) -> tuple[Callable[[float], float], Iterator[str]]:
    y, low, high = _FRAME.error_scale(values, _DECADES)

    def grid() -> Iterator[str]:
        yield from _FRAME.levels(low, high, lambda exponent: y(10.0**exponent))
        if any(value == 0 for value in values):
            yield from _FRAME.level(y(0.0), "0")
        if any(math.isinf(value) for value in values):
            yield from _FRAME.level(y(math.inf), "∞")

    return y, grid()


def _linear_scale(values: Sequence[float]) -> tuple[Callable[[float], float], Iterator[str]]:
    shown = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(shown), max(shown)
    scale = svg.linear_scale(low, high, _HEIGHT - _BOTTOM - _LANE, _TOP + _LANE)

    def y(value: float) -> float:
        if math.isinf(value):
            return _TOP + _LANE / 2 if value > 0 else _HEIGHT - _BOTTOM - _LANE / 2
        return scale(value)

    def grid() -> Iterator[str]:
        for tick in svg.list_ticks(low, high, 6):
            yield from _FRAME.level(scale(tick), format_figure(tick))
        for end, label in ((math.inf, "∞"), (-math.inf, "-∞")):
            if end in values:
                yield from _FRAME.level(y(end), label)

    return y, grid()
