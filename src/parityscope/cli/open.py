"""`parityscope open STUDY`: the whole network with its findings, in a viewer of models if one is installed, else the report."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "open"

# What each viewer needs to be importable, the one that shows errors as colours first.
_NEEDS = {"model-explorer": ("model_explorer", "model_explorer_onnx"), "netron": ("netron",), "browser": ()}
_INSTALLS = {"model-explorer": "pip install ai-edge-model-explorer model-explorer-onnx", "netron": "pip install netron"}


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
    from parityscope.cli import _viewing
    from parityscope.private_folders import scratch_folder

    with scratch_folder("open") as scratch:
        show = {"model-explorer": _viewing.show_in_model_explorer, "netron": _viewing.show_in_netron}[viewer]
        show(document, model, Path(scratch), browse=browse)
