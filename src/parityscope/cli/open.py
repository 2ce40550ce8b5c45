"""`parityscope open STUDY`: the whole network with its findings, in a viewer of models if one is installed, else the report.

A study's network in a viewer of models that is installed, each told what was found in the way that it documents.

Model Explorer colours nodes by an overlay of node data, one each for the introduced and the total error. Netron has no overlays,
but shows each node's own metadata: it is given a copy of the graph that holds there what was found, without its large weights.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit, ParityError
from parityscope.report.words import clean, format_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

_ADAPTER = "model_explorer_onnx"
_MEASURED = {
    "introduced": "introduced error",
    "inherited": "inherited error",
    "rel_l2": "total error",
    "grade": "grade",
}
_LARGE = 1 << 16  # bytes of a weight that a copy for looking at does without; chosen
NAME = "open"
# What each viewer needs to be importable, the one that shows errors as colours first.
_NEEDS = {"model-explorer": ("model_explorer", "model_explorer_onnx"), "netron": ("netron",), "browser": ()}
_INSTALLS = {"model-explorer": "pip install ai-edge-model-explorer model-explorer-onnx", "netron": "pip install netron"}


def _show_in_model_explorer(document: Mapping[str, Any], model: Path, scratch: Path, *, browse: bool) -> None:
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


def _show_in_netron(document: Mapping[str, Any], model: Path, scratch: Path, *, browse: bool) -> None:
    """A copy of the model's graph with what was found of each node, until Netron is ended."""
    import netron  # type: ignore[import-not-found, unused-ignore]  # nobody's duty here
    import onnx

    from parityscope.study import as_written

    copy = scratch / model.name
    held = onnx.load(model, load_external_data=False)
    with as_written():
        onnx.save(_annotate_model(held, document), copy)
    host, port = netron.start(str(copy), browse=browse)
    print(f"http://{host}:{port}", flush=True)
    netron.wait()


def _annotate_model(model: onnx.ModelProto, document: Mapping[str, Any]) -> onnx.ModelProto:
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


def command(
    study: Annotated[Path, typer.Argument(help="The folder of a study.", show_default=False)],
    *,
    viewer: Annotated[
        str, typer.Option("--in", help="model-explorer, netron or browser [the first that is installed].")
    ] = "",
    model: Annotated[str, typer.Option(help="Where the model is now.")] = "",
    quietly: Annotated[bool, typer.Option("--no-browser", help="Only print the address; open no window.")] = False,
) -> int:
    """Shows a study's network with its findings: in Model Explorer or Netron where installed, else the report in the browser."""
    from parityscope.case.intake import read_message
    from parityscope.study import as_written, load_study

    if viewer and viewer not in _NEEDS:
        raise ParityError(f"there is no viewer {viewer!r}", fix=f"use one of: {', '.join(_NEEDS)}")
    if study.suffix == ".onnx":
        fix = "give the folder that `diagnose` wrote, and the model with --model; `parityscope look` tells of a model alone"
        raise ParityError(f"{study.name} is a model, and `open` shows a study", where=str(study), fix=fix)
    held = load_study(study)
    folder = held.folder or study
    with as_written(study):
        path = _model_of(held.document, folder, model)
    chosen = _choose_viewer(viewer, path)
    if path is not None and chosen != "browser":
        read_message(path)  # a viewer would show a page of its own errors
    if chosen == "browser" or path is None:
        _open_report(folder, browse=not quietly)
    else:
        _open_network(chosen, held.document, path, browse=not quietly)
    return Exit.WITHIN


def _model_of(document: Mapping[str, Any], folder: Path, given: str) -> Path | None:
    """The model's file, where it still is: as it was named, or beside the study."""
    named = str((document.get("model") or {}).get("path") or "")
    places = [Path(given)] if given else [Path(named), folder.parent / Path(named).name, folder / "model.onnx"]
    found = next((place for place in places if place.suffix == ".onnx" and place.is_file()), None)
    if given and found is None:
        raise ParityError(f"there is no model {given}", fix="give an .onnx file")
    return found


def _choose_viewer(wanted: str, model: Path | None) -> str:
    """The viewer that was asked for, or the first that is installed and has a model to show.

    Raises:
        ParityError: that viewer is not installed, or the model is not there.
    """
    if not wanted:
        return next(name for name in _NEEDS if _is_installed(name) and (model is not None or name == "browser"))
    if not _is_installed(wanted):
        raise ParityError(f"{wanted} is not installed", fix=_INSTALLS[wanted])
    if model is None and wanted != "browser":
        raise ParityError("the model of the study is not where it was", fix="name it: --model MODEL.onnx")
    return wanted


def _is_installed(viewer: str) -> bool:
    return all(find_spec(name) is not None for name in _NEEDS[viewer])


def _open_report(folder: Path, *, browse: bool) -> None:
    import webbrowser

    report = (folder / "report.html").resolve()
    if not report.is_file():
        raise ParityError(f"there is no report at {report}", fix=f"write it: parityscope report {folder} -o {report}")
    print(report.as_uri(), flush=True)
    if browse and not webbrowser.open(report.as_uri()):
        print("no browser could be started; open that address in one", file=sys.stderr)


def _open_network(viewer: str, document: Mapping[str, Any], model: Path, *, browse: bool) -> None:
    """Serves the network until it is interrupted."""
    from parityscope.private_folders import scratch_folder

    with scratch_folder("open") as scratch:
        show = {"model-explorer": _show_in_model_explorer, "netron": _show_in_netron}[viewer]
        show(document, model, Path(scratch), browse=browse)
