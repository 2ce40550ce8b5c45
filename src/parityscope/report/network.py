"""What TensorRT makes of a file -> text | json | html: the page of `parityscope network`. All of it is pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.records import ROLES
from parityscope.report._console import (
    VERDICT_STYLES,
    command_line,
    print_heading,
    print_paragraph,
    print_rows_left,
    print_table,
)
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import document_head, plain_items
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import print_skipped, view_listed
from parityscope.report.words import clean, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from parityscope.backends.tensorrt.network import NetworkView
    from parityscope.records import Finding

_MOST_ROWS = 40  # rows of a table (chosen); the JSON holds them all
_MEANS = {
    "kernel": "a layer of the engine names it",
    "absorbed": "became part of the kernels around it, or moves data",
    "folded": "computed while building, from constants or shapes",
    "removed": "hands its input on, or nothing reads it",
    "refused": "not built",
}


def network_document(
    view: NetworkView, findings: Sequence[Finding], *, model: Path, command: str = ""
) -> dict[str, Any]:
    """Everything that the view says, as plain data; `verdict` is "beyond" when nothing was built, else "within"."""
    return plain_items(
        {
            **document_head(command, kind="network"),
            "verdict": "beyond" if view.problem else "within",
            "model": {"name": model.stem, "path": str(model)},
            "built_by": view.version,
            "problem": view.problem,
            "seconds": view.seconds,
            "plan_nbytes": view.plan_nbytes,
            "inputs": {
                "file": view.file_inputs,
                "network": view.inputs,
                "engine": view.engine_inputs,
            },
            "outputs": view.outputs,
            "network_layers": {
                "total": sum(view.layers.values()),
                "helpers": view.helpers,
                "unmapped": view.unmapped,
                "by_kind": view.layers,
            },
            "types_after_parsing": view.types,
            "engine_layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "nodes": layer.nodes,
                    "types": layer.types,
                    "kernel": layer.tactic,
                    "asked": executed.asked,
                    "stored": executed.stored,
                }
                for layer, executed in zip(view.engine_layers, view.executed.layers, strict=True)
            ],
            "fixed": view.fixed,
            "settled": view.settled is not None,
            "wordless": view.wordless,
            "fates": Counter(node.fate for node in view.nodes),
            "nodes": view.nodes,
            "counts": {role: sum(one.role == role for one in findings) for role in ROLES},
            "findings": findings,
            "skipped": view.skipped,
        }
    )


def _view_network(document: Mapping[str, Any]) -> dict[str, Any]:
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


def _print_network(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the view of the network view."""
    print_paragraph(console, f"{model['symbol']} {model['label']}", VERDICT_STYLES[model["verdict"]])
    print_paragraph(console, f"{model['model']}: {model['headline']}", "bold")
    print_table(console, ("", ""), model["facts"], apart=True)
    print_heading(console, "What became of the nodes")
    print_table(console, ("fate", "nodes", "that is"), model["fates"], right=(1,))
    for finding in model["findings"]:
        print_heading(console, f"{finding['code']} {finding['title']}")
        print_paragraph(console, finding["claim"], indent=1)
        for repair in finding["repairs"]:
            print_paragraph(console, f"- {repair['text']}", indent=1)
            for line in repair["command"].splitlines():
                command_line(console, line)
    if model["layers"]:
        print_heading(console, "Layers of the engine")
        print_table(console, ("layer", "writes", "ONNX nodes"), model["layers"])
        print_rows_left(console, model["layers_more"], " in the JSON")
    print_skipped(console, "What was done otherwise", model["skipped"])


FORMS = Forms(
    title="network",
    view=_view_network,
    show=_print_network,
    page=Page(template=TEMPLATES / "network.html.j2"),
)
