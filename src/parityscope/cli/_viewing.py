"""A study's network in a viewer of models that is installed, each told what was found in the way that it documents.

Model Explorer colours nodes by an overlay of node data, one each for the introduced and the total error. Netron has no overlays,
but shows each node's own metadata: it is given a copy of the graph that holds there what was found, without its large weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.words import clean, format_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx

_ADAPTER = "model_explorer_onnx"
_MEASURED = {
    "introduced": "introduced error",
    "inherited": "inherited error",
    "rel_l2": "total error",
    "grade": "grade",
}
_LARGE = 1 << 16  # bytes of a weight that a copy for looking at does without; chosen


def show_in_model_explorer(document: Mapping[str, Any], model: Path, scratch: Path, *, browse: bool) -> None:
    """The model with its overlays, until Model Explorer is ended."""
    import model_explorer  # type: ignore[import-not-found, unused-ignore]  # nobody's duty here

    from parityscope.report import renderer_named
    from parityscope.study import as_written
    from parityscope.whole_files import write_whole

    shown = model_explorer.config()
    shown.add_model_from_path(str(model.resolve()))
    for name in ("node-data", "node-data-total"):
        renderer = renderer_named(name)
        overlay = scratch / f"parityscope{renderer.suffix}"
        with as_written():
            write_whole(overlay, renderer.render(document))
        shown.add_node_data_from_path(str(overlay))
    model_explorer.visualize_from_config(shown, extensions=[_ADAPTER], no_open_in_browser=not browse)


def show_in_netron(document: Mapping[str, Any], model: Path, scratch: Path, *, browse: bool) -> None:
    """A copy of the model's graph with what was found of each node, until Netron is ended."""
    import netron  # type: ignore[import-not-found, unused-ignore]  # nobody's duty here
    import onnx

    from parityscope.study import as_written

    copy = scratch / model.name
    held = onnx.load(model, load_external_data=False)
    with as_written():
        onnx.save(annotate_model(held, document), copy)
    host, port = netron.start(str(copy), browse=browse)
    print(f"http://{host}:{port}", flush=True)
    netron.wait()


def annotate_model(model: onnx.ModelProto, document: Mapping[str, Any]) -> onnx.ModelProto:
    """The model itself, its nodes with what was found of them as metadata; weights over 64 KiB are left out."""
    rows = {str(row.get("name")): row for row in document.get("tensors", ())}
    findings: dict[str, list[Mapping[str, Any]]] = {}
    for finding in document.get("findings", ()):
        findings.setdefault(str((finding.get("site") or {}).get("tensor") or ""), []).append(finding)
    for node in model.graph.node:
        for tensor in filter(None, node.output):
            for key, told in _facts_of(rows.get(tensor, {})):
                node.metadata_props.add(key=f"parityscope: {key}", value=told)
            for finding in findings.get(tensor, ()):
                key = f"parityscope: {clean(finding.get('role', ''))} {clean(finding.get('code', ''))}"
                node.metadata_props.add(key=key, value=clean(finding.get("claim") or finding.get("title") or ""))
    for weight in model.graph.initializer:
        if weight.ByteSize() > _LARGE and not weight.external_data:
            _leave_out(weight)
    return model


def _facts_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    held = [(title, row.get(key)) for key, title in _MEASURED.items()]
    return [
        (title, value if isinstance(value, str) else format_error(value)) for title, value in held if value is not None
    ]


def _leave_out(weight: onnx.TensorProto) -> None:
    """Its name, type and shape stay; its values are told to lie in a file that is not there."""
    import onnx

    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
        weight.ClearField(field)
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="left-out-of-this-copy")
