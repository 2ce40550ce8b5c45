"""Writes a study's folder and prints the result: shared by diagnose, compare and localize."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

from parityscope.cli._output import terminal
from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["exit_code", "finish", "redacted", "show", "write_study"]

_EXITS = {"within": Exit.WITHIN, "beyond": Exit.BEYOND, "incomplete": Exit.INCOMPLETE}


def finish(
    folder: Path,
    format_name: str,
    examine: Callable[[Path], dict[str, Any]],
    *,
    keep_tensors: bool,
    redact: bool,
    quiet: bool,
    facts: Mapping[str, Any] | None = None,
    ladder: bool = False,
) -> int:
    """Examines into a scratch folder, writes study.json and report.html there, and makes it the study.

    With `facts` of the run, the scratch folder of an interrupted one is resumed.
    """
    from parityscope.report import renderer
    from parityscope.study import prepare_folder

    wanted = renderer(format_name)
    try:
        with prepare_folder(folder, facts) as scratch:
            tensors = scratch / "tensors"
            document = examine(tensors)
            repaired = tensors / "repaired.onnx"
            if repaired.exists() and not redact:
                repaired.rename(scratch / repaired.name)
            if redact:
                document = redacted(document)
            if not keep_tensors or redact:
                shutil.rmtree(tensors, ignore_errors=True)
            write_study(scratch, document, renderer("html").render)
    except KeyboardInterrupt as interrupt:
        # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
        raise typer.Abort from interrupt
    show(document, wanted.name, ladder=ladder)
    if not quiet:
        print(f"{document['verdict']}; the report is {folder / 'report.html'}", file=sys.stderr)
    return exit_code(document)


def write_study(folder: Path, document: dict[str, Any], as_html: Callable[[Mapping[str, Any]], str]) -> None:
    """Writes the two files that every study has."""
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    (folder / "study.json").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(as_html(document), encoding="utf-8")


def show(document: dict[str, Any], format_name: str, *, ladder: bool = False) -> None:
    """Prints a document in one of the report formats; colours on a terminal, unless NO_COLOR is set."""
    from parityscope.report import as_text, renderer

    if format_name == "text":
        width, color = terminal()
        print(as_text.render(document, width=width, color=color, ladder=ladder))
    else:
        print(renderer(format_name).render(document))


def exit_code(document: dict[str, Any]) -> int:
    """0 within, 1 beyond, 3 when nothing is beyond but something that was asked for was not judged."""
    if document["verdict"] == "within" and any(skip.get("asked") for skip in document["skipped"]):
        return Exit.INCOMPLETE
    return _EXITS[document["verdict"]]


def redacted(document: dict[str, Any]) -> dict[str, Any]:
    """The document without paths, host and command line; digests and numbers stay."""
    changed = dict(document)
    changed["command"] = ""
    changed["environment"] = {}
    changed["model"] = {**document["model"], "path": "", "name": "model"}
    changed["inputs"] = {**document["inputs"], "origin": "redacted"}
    for side in ("reference", "candidate"):
        target = document[side]["target"].partition("?")[0]
        changed[side] = {**document[side], "target": target, "environment": {}}
    return changed
