"""A forecast -> text | json | html: the page of `parityscope predict`.

`forecast_document` makes the strict-JSON mapping that everything else is drawn from; `view` words it. All of it is pure.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.formats import known_format
from parityscope.checks.generated_inputs import findings_about
from parityscope.report import svg
from parityscope.report._console import (
    print_head,
    print_heading,
    print_not_examined,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report._findings import findings_in_words
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import describe_samples, view_closing
from parityscope.report.words import as_number, clean, format_count, format_figure, shorten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import Forecast, FormatForecast, MagnitudeRange

_SCHEMA = "parityscope-forecast/1"
_WORST = 20  # layers named as introducing most; all are in `layers`
_KEPT = {
    False: "No output is predicted to be lost",
    True: "No output is predicted to be lost, as far as could be judged",
}
_MINUS = "\N{MINUS SIGN}"
_ROWS = 12  # rows of a table of the worst ones; the JSON holds all
# Nearer than this many powers of two to the end of a range is worth a row (chosen: a factor of 16 between samples).
_NEAR = 4.0
_MOST = 5
_WIDTH, _HEIGHT = 1120.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 132.0, 16.0, 46.0
_DECADES = 12  # shown below the largest error at most; float32 has seven digits
_NAMED = 3  # layers that are ringed and numbered in each chart
_LOWEST = -40  # power of two below which magnitudes are cut: FP16 ends at 2^-25, and zeros are left out anyway
_FRAME = svg.Frame(width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
_AXIS = "position in the network (topological index)"
_X = (_LEFT + 10, _WIDTH - _RIGHT - 10)


def forecast_document(found: Forecast, model: Model, inputs: Inputs, *, command: str = "") -> dict[str, Any]:
    """Everything that a forecast says, as plain data.

    Margins are in powers of two: from a tensor's largest element to the format's largest number (`overflow`), from its
    smallest one to the smallest normal number (`subnormal`) and to what is rounded to zero (`zero`); negative is beyond.
    """
    return plain_items(
        {
            **document_head(command, schema=_SCHEMA),
            "lost": found.lost,
            "model": {"name": model.named.stem, "path": str(model.named), "sha256": model.sha256, "nodes": model.nodes},
            "inputs": {"origin": inputs.origin, "samples": found.samples, "generated": inputs.generated},
            "profile": found.profile,
            "statements": found.statements,
            "findings": list(findings_about(inputs)),
            "formats": [_format_as_data(each) for each in found.formats],
            "ranges": [_range_as_data(each, found) for each in found.ranges],
            "skipped": found.skipped,
            "seconds": found.seconds,
        }
    )


def _format_as_data(found: FormatForecast) -> dict[str, Any]:
    number_format = known_format(found.precision)
    return {
        "precision": found.precision,
        "title": number_format.title,
        "largest": number_format.largest,
        "smallest_normal": number_format.smallest_normal,
        "smallest_subnormal": number_format.smallest_subnormal,
        "lost": found.lost,
        "statements": found.statements,
        "cause": found.cause,
        "outputs": [{**asdict(each), "expected": each.expected, "lost": each.lost} for each in found.outputs],
        "worst": [each.site.tensor for each in found.worst(_WORST)],
        "layers": found.layers,
        "parameters": found.parameters,
        "rounding": found.rounding,
    }


def _range_as_data(held: MagnitudeRange, found: Forecast) -> dict[str, Any]:
    margins = {}
    for each in found.formats:
        number_format = known_format(each.precision)
        margins[each.precision] = {
            "overflow": held.to_overflow(number_format),
            "subnormal": held.to_subnormal(number_format),
            "zero": held.to_zero(number_format),
        }
    return {**asdict(held), "margins": margins}


def view_forecast(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    formats = [_view_format(each, document) for each in document["formats"]]
    lost = [each["title"] for each in formats if each["lost"]]
    unjudged = any(skip["asked"] for skip in document["skipped"])
    return {
        "lost": document["lost"],
        "headline": _forecast_headline(document),
        "label": f"An output is lost in {', '.join(lost)}" if lost else _KEPT[unjudged],
        "symbol": "✕" if lost else "?" if unjudged else "✓",
        "verdict": "beyond" if lost else "incomplete" if unjudged else "within",
        "model": clean(document["model"]["name"]),
        "inputs": describe_samples(document["inputs"]["samples"], document["inputs"]),
        "findings": findings_in_words(document),
        "profile": document["profile"],
        "formats": formats,
        "statements": [clean(each) for each in document["statements"]],
        **view_closing(document),
    }


def _forecast_headline(document: Mapping[str, Any]) -> str:
    for each in document["formats"]:
        if each["cause"]:
            return clean(each["cause"]["text"]) + "."
    if document["lost"]:
        return "An output is lost, and no single layer is to blame."
    told = []
    for each in document["formats"]:
        errors = [as_number(output["expected"]) for output in each["outputs"]]
        if errors:
            told.append(f"{each['title']} {format_figure(max(one or 0.0 for one in errors))}")
    return f"Predicted error of the worst output: {', '.join(told)}." if told else "There was nothing to predict."


def _view_format(found: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    layers = {layer["site"]["tensor"]: layer for layer in found["layers"]}
    worst = [layers[name] for name in found["worst"][:_ROWS]]
    parameters = sorted(found["parameters"], key=_gravity_of_parameter)
    return {
        "key": found["precision"],
        "title": found["title"],
        "lost": found["lost"],
        "statements": [clean(each) for each in found["statements"]],
        "outputs": [_view_output(each, found["rounding"]) for each in found["outputs"]],
        "worst": [_view_layer(each) for each in worst],
        "near": _tensors_near_overflow(found["precision"], document["ranges"]),
        "below": _counts_below_normal(found["precision"], document["ranges"]),
        "parameters": [_view_parameter(each) for each in parameters[:_ROWS]],
        "more_parameters": max(0, len(parameters) - _ROWS),
    }


def _view_output(output: Mapping[str, Any], rounding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": clean(output["site"]["tensor"]),
        "lost": output["lost"],
        "error": format_figure(output["expected"]),
        "max_abs": format_figure(output["max_abs"]),
        "nonfinite": format_count(output["nonfinite"]),
        "rounding": format_figure(rounding.get(output["site"]["tensor"])),
    }


def _view_layer(layer: Mapping[str, Any]) -> dict[str, str]:
    return {
        **_view_site(layer["site"]),
        "introduced": format_figure(layer["introduced"]),
        "inherited": format_figure(layer["inherited"]),
        "total": format_figure(layer["rel_l2"]),
        "nonfinite": format_count(layer["nonfinite"]),
    }


def _tensors_near_overflow(precision: str, ranges: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The tensors closest to overflow, those beyond it first."""
    found = [(as_number(held["margins"][precision]["overflow"]), held) for held in ranges]
    close = sorted(
        ((margin, held) for margin, held in found if margin is not None and margin < _NEAR), key=_first_of_pair
    )
    return [
        {**_view_site(held["site"]), "largest": format_figure(held["largest"]), "margin": _format_octaves(margin)}
        for margin, held in close[:_ROWS]
    ]


def _counts_below_normal(precision: str, ranges: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How many tensors hold elements below the normal range, and how many hold some that become zero."""
    subnormal = sum(1 for held in ranges if (as_number(held["margins"][precision]["subnormal"]) or 0.0) < 0)
    zero = sum(1 for held in ranges if (as_number(held["margins"][precision]["zero"]) or 0.0) < 0)
    return {"subnormal": format_count(subnormal), "zero": format_count(zero), "tensors": format_count(len(ranges))}


def _view_parameter(parameter: Mapping[str, Any]) -> dict[str, str]:
    more = len(parameter["nodes"]) - 1
    return {
        "name": clean(parameter["name"]),
        "node": clean(parameter["nodes"][0]) + (f" and {more} more" if more else ""),
        "role": clean(parameter["role"]),
        "overflowed": format_count(parameter["overflowed"]),
        "flushed": format_count(parameter["flushed"]),
        "subnormal": format_count(parameter["subnormal"]),
        "elements": format_count(parameter["elements"]),
        "value": format_figure(parameter["value"]),
        "smallest": format_figure(parameter["smallest"]),
    }


def _gravity_of_parameter(parameter: Mapping[str, Any]) -> tuple[bool, float, float]:
    elements = parameter["elements"] or 1
    return not parameter["overflowed"], -parameter["flushed"] / elements, -parameter["subnormal"] / elements


def _view_site(site: Mapping[str, Any]) -> dict[str, str]:
    return {
        "node": clean(site["node"] or site["tensor"]),
        "op_type": clean(site["op_type"]),
        "tensor": clean(site["tensor"]),
    }


def _format_octaves(margin: float) -> str:
    if not math.isfinite(margin):
        return format_figure(margin)
    return f"{margin:+.1f}".replace("-", _MINUS)


def _first_of_pair(pair: tuple[float, Mapping[str, Any]]) -> float:
    return pair[0]


def _print_forecast(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of a forecast."""
    about = "" if model["profile"] == "none" else f", fusion as in {model['profile']}"
    print_head(console, model, [f"{model['model']}: simulated on {model['inputs']}{about}"])
    for sentence in model["statements"]:
        print_paragraph(console, sentence)
    for each in model["formats"]:
        _print_format(console, each, model["headline"])
    print_not_examined(console, model["skipped"])


def _print_format(console: Console, found: Mapping[str, Any], headline: str) -> None:
    print_heading(console, found["title"])
    for sentence in found["statements"]:
        if sentence != headline:
            print_paragraph(console, sentence)
    below = found["below"]
    if below["subnormal"] != "0":
        print_paragraph(
            console,
            f"{below['subnormal']} of {below['tensors']} tensors hold elements below the normal range, "
            f"{below['zero']} some that become zero.",
        )
    for columns, rows, right in _list_tables(found, max(16, console.width - 60)):
        print_table(console, columns, rows[:_MOST], right=right, apart=True)
    print_rows_left(console, len(found["parameters"]) + found["more_parameters"] - _MOST)


def _list_tables(
    found: Mapping[str, Any], width: int
) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]], Sequence[int]]]:
    """The tables of a format as (columns, rows, columns of numbers); names are cut to `width`."""
    if len(found["outputs"]) > 1:
        columns = ("output", "relative L2", "largest error", "NaN, Inf", "")
        outputs = [(one["error"], one["max_abs"], one["nonfinite"], "lost" * one["lost"]) for one in found["outputs"]]
        names = [shorten_name(one["name"], width) for one in found["outputs"]]
        yield columns, [(name, *rest) for name, rest in zip(names, outputs, strict=True)], (1, 2, 3)
    if found["worst"]:
        keys = ("op_type", "introduced", "inherited", "total")
        yield ("adds most", "", *keys[1:]), _table_rows(found["worst"], "node", keys, width), (2, 3, 4)
    if found["near"]:
        rows = _table_rows(found["near"], "node", ("op_type", "largest", "margin"), width)
        yield ("nearest to overflow", "", "largest", "powers of two left"), rows, (2, 3)
    if found["parameters"]:
        rows = _table_rows(
            found["parameters"], "name", ("role", "overflowed", "flushed", "subnormal", "elements"), width
        )
        yield ("parameters that change", "", "overflow", "to zero", "subnormal", "of"), rows, (2, 3, 4, 5)


def _table_rows(
    items: Sequence[Mapping[str, str]], name: str, keys: Sequence[str], width: int
) -> Sequence[Sequence[str]]:
    return [(shorten_name(item[name], width), *(item[key] for key in keys)) for item in items]


def _draw_forecast(document: Mapping[str, Any]) -> dict[str, str | list[str]]:
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


FORMS = Forms(
    title="a forecast",
    view=view_forecast,
    show=_print_forecast,
    page=Page(template=TEMPLATES / "forecast.html.j2", styles=(TEMPLATES / "forecast.css",), draw=_draw_forecast),
)
