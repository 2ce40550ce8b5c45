"""A forecast's document -> plain data with every number already worded, which the page and the terminal lay out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report._findings import findings_in_words
from parityscope.report.words import clean, count, figure, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["view"]

_KEPT = {
    False: "No output is predicted to be lost",
    True: "No output is predicted to be lost, as far as could be judged",
}
_MINUS = "\N{MINUS SIGN}"
_ROWS = 12  # rows of a table of the worst ones; the JSON holds all
# Nearer than this many powers of two to the end of a range is worth a row (chosen: a factor of 16 between samples).
_NEAR = 4.0


def view(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown, in the order in which it is read."""
    formats = [_format(each, document) for each in document["formats"]]
    lost = [each["title"] for each in formats if each["lost"]]
    unjudged = any(skip["asked"] for skip in document["skipped"])
    return {
        "lost": document["lost"],
        "headline": _headline(document),
        "label": f"An output is lost in {', '.join(lost)}" if lost else _KEPT[unjudged],
        "symbol": "✕" if lost else "?" if unjudged else "✓",
        "model": clean(document["model"]["name"]),
        "inputs": _inputs(document["inputs"]),
        "findings": findings_in_words(document),
        "profile": document["profile"],
        "formats": formats,
        "statements": [clean(each) for each in document["statements"]],
        "skipped": [{key: clean(each[key]) for key in ("what", "reason", "fix")} for each in document["skipped"]],
        "command": clean(document["command"]),
        "tool": f"{document['tool']['name']} {document['tool']['version']}",
        "schema": document["schema"],
    }


def _headline(document: Mapping[str, Any]) -> str:
    for each in document["formats"]:
        if each["cause"]:
            return clean(each["cause"]["text"]) + "."
    if document["lost"]:
        return "An output is lost, and no single layer is to blame."
    told = []
    for each in document["formats"]:
        errors = [number(output["expected"]) for output in each["outputs"]]
        if errors:
            told.append(f"{each['title']} {figure(max(one or 0.0 for one in errors))}")
    return f"Predicted error of the worst output: {', '.join(told)}." if told else "There was nothing to predict."


def _inputs(inputs: Mapping[str, Any]) -> str:
    made = "generated " if inputs["generated"] else ""
    plural = "" if inputs["samples"] == 1 else "s"
    return f"{inputs['samples']} {made}sample{plural} ({clean(inputs['origin'])})"


def _format(found: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    layers = {layer["site"]["tensor"]: layer for layer in found["layers"]}
    worst = [layers[name] for name in found["worst"][:_ROWS]]
    parameters = sorted(found["parameters"], key=_gravity)
    return {
        "key": found["precision"],
        "title": found["title"],
        "lost": found["lost"],
        "statements": [clean(each) for each in found["statements"]],
        "outputs": [_output(each, found["rounding"]) for each in found["outputs"]],
        "worst": [_layer(each) for each in worst],
        "near": _near(found["precision"], document["ranges"]),
        "below": _below(found["precision"], document["ranges"]),
        "parameters": [_parameter(each) for each in parameters[:_ROWS]],
        "more_parameters": max(0, len(parameters) - _ROWS),
    }


def _output(output: Mapping[str, Any], rounding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": clean(output["site"]["tensor"]),
        "lost": output["lost"],
        "error": figure(output["expected"]),
        "max_abs": figure(output["max_abs"]),
        "nonfinite": count(output["nonfinite"]),
        "rounding": figure(rounding.get(output["site"]["tensor"])),
    }


def _layer(layer: Mapping[str, Any]) -> dict[str, str]:
    return {
        **_site(layer["site"]),
        "introduced": figure(layer["introduced"]),
        "inherited": figure(layer["inherited"]),
        "total": figure(layer["rel_l2"]),
        "nonfinite": count(layer["nonfinite"]),
    }


def _near(precision: str, ranges: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The tensors closest to overflow, those beyond it first."""
    found = [(number(held["margins"][precision]["overflow"]), held) for held in ranges]
    close = sorted(((margin, held) for margin, held in found if margin is not None and margin < _NEAR), key=_first)
    return [
        {**_site(held["site"]), "largest": figure(held["largest"]), "margin": _octaves(margin)}
        for margin, held in close[:_ROWS]
    ]


def _below(precision: str, ranges: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How many tensors hold elements below the normal range, and how many hold some that become zero."""
    subnormal = sum(1 for held in ranges if (number(held["margins"][precision]["subnormal"]) or 0.0) < 0)
    zero = sum(1 for held in ranges if (number(held["margins"][precision]["zero"]) or 0.0) < 0)
    return {"subnormal": count(subnormal), "zero": count(zero), "tensors": count(len(ranges))}


def _parameter(parameter: Mapping[str, Any]) -> dict[str, str]:
    more = len(parameter["nodes"]) - 1
    return {
        "name": clean(parameter["name"]),
        "node": clean(parameter["nodes"][0]) + (f" and {more} more" if more else ""),
        "role": clean(parameter["role"]),
        "overflowed": count(parameter["overflowed"]),
        "flushed": count(parameter["flushed"]),
        "subnormal": count(parameter["subnormal"]),
        "elements": count(parameter["elements"]),
        "value": figure(parameter["value"]),
        "smallest": figure(parameter["smallest"]),
    }


def _gravity(parameter: Mapping[str, Any]) -> tuple[bool, float, float]:
    elements = parameter["elements"] or 1
    return not parameter["overflowed"], -parameter["flushed"] / elements, -parameter["subnormal"] / elements


def _site(site: Mapping[str, Any]) -> dict[str, str]:
    return {
        "node": clean(site["node"] or site["tensor"]),
        "op_type": clean(site["op_type"]),
        "tensor": clean(site["tensor"]),
    }


def _octaves(margin: float) -> str:
    if not math.isfinite(margin):
        return figure(margin)
    return f"{margin:+.1f}".replace("-", _MINUS)


def _first(pair: tuple[float, Mapping[str, Any]]) -> float:
    return pair[0]
