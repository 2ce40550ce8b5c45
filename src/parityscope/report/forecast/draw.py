"""Two drawings: the error of every format along the depth of the network, and the range of every tensor.

Both are over the topological index. Errors are on a log axis with lanes of their own for exact zeros (below) and for
NaN and infinity (above). Ranges are bars from a tensor's smallest to its largest magnitude, in powers of two, against
the ends of each format's range.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report import svg
from parityscope.report.words import as_number, format_figure, shorten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_WIDTH, _HEIGHT = 1120.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 132.0, 16.0, 46.0
_DECADES = 12  # shown below the largest error at most; float32 has seven digits
_NAMED = 3  # layers that are ringed and numbered in each chart
_LOWEST = -40  # power of two below which magnitudes are cut: FP16 ends at 2^-25, and zeros are left out anyway
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_AXIS = "position in the network (topological index)"
_X = (_LEFT + 10, _WIDTH - _RIGHT - 10)


def draw_forecast(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """The drawings of a forecast: all formats over the depth, each alone, and the ranges that tensors reach."""
    formats = document["formats"]
    return {
        "depth": _draw_depth(formats, introduced=False) if len(formats) > 1 else "",
        "single": [_draw_depth([each], introduced=True) for each in formats],
        "ranges": _draw_ranges(document["ranges"], formats),
    }


def _draw_depth(formats: Sequence[Mapping[str, Any]], *, introduced: bool) -> str:
    """Total errors as a line a format; with `introduced`, what each layer adds as dots and the worst ones ringed."""
    points = [layer for each in formats for layer in each["layers"]]
    if not points:
        return ""
    x = svg.linear_scale(*_ends_of(points), *_X)
    errors = (as_number(one[key]) for one in points for key in ("rel_l2", "introduced"))
    y, low, high = _FRAME.error_scale((value for value in errors if value is not None), _DECADES)
    body = list(_error_grid(y, low, high, nonfinite=any(_is_nonfinite(one["rel_l2"]) for one in points)))
    body += _FRAME.base(svg.at_indices(*_ends_of(points), x), _AXIS)
    for each in formats:
        line = [
            None if (at := as_number(one["rel_l2"])) is None else (x(_layer_index(one)), y(at))
            for one in each["layers"]
        ]
        body.append(svg.svg_element("path", {"d": svg.line_path(line), "class": f"line {each['precision']}"}))
        if introduced:
            body.extend(_draw_introduced(each, x, y))
    body += _line_ends(formats, y)
    title = "Predicted error along the depth of the network"
    identity = "depth-" + "-".join(each["precision"] for each in formats)
    return svg.svg_figure(identity, (_WIDTH, _HEIGHT), title, _describe_chart(formats), body)


def _draw_ranges(ranges: Sequence[Mapping[str, Any]], formats: Sequence[Mapping[str, Any]]) -> str:
    """The bar of every tensor and the ends of the formats' ranges; empty without tensors."""
    held = [each for each in ranges if (as_number(each["largest"]) or 0.0) > 0 and each["site"]["index"] >= 0]
    if not held:
        return ""
    x = svg.linear_scale(*_ends_of(held), *_X)
    bounded = [each for each in formats if each["precision"] not in {"tf32", "bf16"}]
    tops = [math.log2(each["largest"]) for each in [*held, *bounded]]
    bottoms = [math.log2(each["smallest"]) for each in held if each["smallest"]]
    low, high = max(_LOWEST, math.floor(min(bottoms, default=0.0))), math.ceil(max(tops)) + 1
    low = min([low, *(math.floor(math.log2(each["smallest_normal"])) - 2 for each in bounded)])
    scale = svg.linear_scale(low, high, _HEIGHT - _BOTTOM, _TOP)

    def y(value: float) -> float:
        return scale(min(max(math.log2(value), low), high))

    body = list(_power_grid(low, high, scale))
    body += _FRAME.base(svg.at_indices(*_ends_of(held), x), _AXIS)
    path = "".join(
        f"M{x(_layer_index(each)):.1f},{y(each['smallest'] or 2.0**low):.1f}V{y(each['largest']):.1f}" for each in held
    )
    body.append(svg.svg_element("path", {"d": path, "class": "bars"}))
    body += _draw_limits(bounded, y)
    words = f"{len(held)} tensors in graph order, from their smallest to their largest magnitude."
    return svg.svg_figure("ranges", (_WIDTH, _HEIGHT), "Range of every tensor", words, body)


def _ends_of(held: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The first and the last index."""
    indices = [_layer_index(one) for one in held]
    return min(indices), max(indices)


def _layer_index(held: Mapping[str, Any]) -> float:
    return float(held["site"]["index"])


def _is_nonfinite(value: object) -> bool:
    x = as_number(value)
    return x is not None and not math.isfinite(x)


def _error_grid(y: Callable[[float], float], low: int, high: int, *, nonfinite: bool) -> Iterator[str]:
    yield from _FRAME.levels(low, high, lambda exponent: y(10.0**exponent))
    yield svg.svg_text(_LEFT - 8, y(0.0) + 4, "0", "tick", anchor="end")
    if nonfinite:
        yield svg.svg_text(_LEFT - 8, y(math.inf) + 4, "NaN, ∞", "tick", anchor="end")


def _power_grid(low: int, high: int, scale: Callable[[float], float]) -> Iterator[str]:
    for exponent in range(low + (-low) % 10, high + 1, 10):
        yield from _FRAME.level(scale(exponent), svg.format_power(2, exponent))


def _draw_introduced(
    found: Mapping[str, Any], x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    """What each layer introduces as dots; the worst ones ringed, the first of them named."""
    added = {
        one["site"]["tensor"]: (x(_layer_index(one)), y(size))
        for one in found["layers"]
        if (size := as_number(one["introduced"])) is not None
    }
    yield svg.svg_element("path", {"d": svg.point_path(added.values()), "class": f"dots {found['precision']}"})
    named = {one["site"]["tensor"]: one for one in found["layers"]}
    for rank, tensor in enumerate(found["worst"][:_NAMED], start=1):
        at = added[tensor]
        yield svg.svg_element("circle", {"cx": at[0], "cy": at[1], "r": 8, "class": "ring"})
        side = 1 if at[0] < _WIDTH * 0.55 else -1
        if rank == 1:
            name = f"1 {shorten_name(named[tensor]['site']['node'] or tensor, 50)}"
            anchor = "start" if side > 0 else "end"
            yield svg.svg_text(at[0] + side * 14, at[1] - 1, name, "note strong", anchor=anchor)
            adds = f"introduces {format_figure(named[tensor]['introduced'])}"
            yield svg.svg_text(at[0] + side * 14, at[1] + 14, adds, "note", anchor=anchor)
        else:
            yield svg.svg_text(at[0], at[1] + (-12 if rank % 2 == 0 else 20), str(rank), "note", anchor="middle")


def _line_ends(formats: Sequence[Mapping[str, Any]], y: Callable[[float], float]) -> Iterator[str]:
    """The title of each format behind the end of its line, with its last error."""
    ends = [(each, each["layers"][-1]) for each in formats if each["layers"]]
    heights = svg.spread_apart([y(as_number(last["rel_l2"]) or 0.0) for _, last in ends], 17, _TOP, _HEIGHT - _BOTTOM)
    for (each, last), height in zip(ends, heights, strict=True):
        label = f"{each['title']} {format_figure(last['rel_l2'])}"
        yield svg.svg_text(_WIDTH - _RIGHT - 2, height + 4, label, f"end {each['precision']}")


def _draw_limits(formats: Sequence[Mapping[str, Any]], y: Callable[[float], float]) -> Iterator[str]:
    ends = []
    for each in formats:
        ends.append((y(each["largest"]), f"{each['title']} largest", each["precision"]))
        ends.append((y(each["smallest_normal"]), f"{each['title']} normal", each["precision"]))
        ends.append((y(each["smallest_subnormal"]), f"{each['title']} smallest", each["precision"]))
    heights = svg.spread_apart([at for at, _, _ in ends], 15, _TOP, _HEIGHT - _BOTTOM)
    for (at, label, css), height in zip(ends, heights, strict=True):
        line = {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": at, "y2": at, "class": f"edge-of {css}"}
        yield svg.svg_element("line", line)
        yield svg.svg_text(_WIDTH - _RIGHT + 4, height + 4, label, f"small end {css}")


def _describe_chart(formats: Sequence[Mapping[str, Any]]) -> str:
    said = []
    for each in formats:
        errors = [as_number(one["rel_l2"]) for one in each["layers"]]
        worst = max((math.inf if math.isnan(one) else one for one in errors if one is not None), default=0.0)
        said.append(f"{each['title']}: {len(errors)} tensors, the largest relative L2 error is {format_figure(worst)}.")
    return " ".join(said)
