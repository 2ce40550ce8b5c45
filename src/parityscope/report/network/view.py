"""The view model of the network view: every number worded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.listed import view_listed
from parityscope.report.words import clean, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_ROWS = 40  # rows of a table (chosen); the JSON holds them all
_MEANS = {
    "kernel": "a layer of the engine names it",
    "absorbed": "became part of the kernels around it, or moves data",
    "folded": "computed while building, from constants or shapes",
    "removed": "hands its input on, or nothing reads it",
    "refused": "not built",
}


def view_network(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a network document."""
    fates, layers = document["fates"], document["network_layers"]
    inputs = document["inputs"]
    same = inputs["file"] == inputs["engine"]
    problem = clean(document["problem"])
    return {
        **view_listed(document),
        "model": clean(document["model"]["name"]),
        "verdict": document["verdict"],
        "symbol": "\N{MULTIPLICATION X}" if problem else "\N{CHECK MARK}",
        "label": f"{clean(document['built_by'])}: " + ("not built" if problem else "built, not run"),
        "headline": problem
        or (
            f"{format_count(sum(fates.values()))} nodes became {format_count(len(document['engine_layers']))} layers "
            "of the engine"
        ),
        "facts": [
            ("took", format_seconds(document["seconds"])),
            ("engine", format_bytes(document["plan_nbytes"]) if document["plan_nbytes"] else "-"),
            *([("computed beforehand", _describe_settled(document))] if document["settled"] else []),
            ("inputs of the engine, in this order", ", ".join(clean(name) for name in inputs["engine"]) or "-"),
            ("inputs of the file", "the same order" if same else ", ".join(clean(name) for name in inputs["file"])),
            ("types of the inputs", _describe_tensors(inputs["network"])),
            ("types of the outputs", _describe_tensors(document["outputs"])),
            (
                "layers of the network",
                f"{format_count(layers['total'])}, of them {format_count(layers['helpers'])} added by the parser",
            ),
            (
                "types that they write",
                ", ".join(f"{clean(k)} {format_count(n)}" for k, n in document["types_after_parsing"].items()),
            ),
        ],
        "fates": [[clean(fate), format_count(number), _MEANS[fate]] for fate, number in sorted(fates.items())],
        "layers": [
            [clean(one["name"]), clean("/".join(one["types"])), clean(", ".join(one["nodes"]))]
            for one in document["engine_layers"][:_MOST_ROWS]
        ],
        "layers_more": max(0, len(document["engine_layers"]) - _MOST_ROWS),
        "nodes": [
            [
                clean(one["node"]),
                clean(one["op_type"]),
                clean(one["fate"]),
                clean(one["reason"]),
                clean(", ".join(one["layers"])),
            ]
            for one in document["nodes"]
        ],
    }


def _describe_settled(document: Mapping[str, Any]) -> str:
    fixed = ", ".join(clean(name) for name in document["fixed"])
    return "what shapes and constants decide" + (f"; fixed inputs: {fixed}" if fixed else "")


def _describe_tensors(tensors: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{clean(one['name'])} {clean(one['dtype'])}{list(one['shape'])}" for one in tensors)
