"""A forecast's document -> plain data with every number already worded, which the page and the terminal lay out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings_in_words
from parityscope.report.listed import describe_samples, view_closing
from parityscope.report.words import as_number, clean, format_count, format_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEPT = {
    False: "No output is predicted to be lost",
    True: "No output is predicted to be lost, as far as could be judged",
}
_MINUS = "\N{MINUS SIGN}"
_ROWS = 12  # rows of a table of the worst ones; the JSON holds all
# Nearer than this many powers of two to the end of a range is worth a row (chosen: a factor of 16 between samples).
_NEAR = 4.0


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
