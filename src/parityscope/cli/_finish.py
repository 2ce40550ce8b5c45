"""Writes a study's folder and prints the result: shared by diagnose, compare and localize."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from parityscope.cli._output import terminal
from parityscope.cli._streams import print_drawn
from parityscope.errors import EXIT_OF, Exit
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["exit_code", "finish", "redacted", "show", "write_study"]


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
    numbered: bool = False,
) -> int:
    """Examines into a scratch folder, writes study.json and report.html there, and makes it the study.

    With `facts` of the run, the scratch folder of an interrupted one is resumed. With `numbered` a `folder` that is taken
    gets a number.
    """
    from parityscope.report import renderer
    from parityscope.study import folder_of, prepare_folder

    wanted = renderer(format_name)
    try:
        with prepare_folder(folder, facts, numbered=numbered) as scratch:
            folder = folder_of(scratch)
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
    write_whole(folder / "study.json", text)
    write_whole(folder / "report.html", as_html(document))


def show(document: dict[str, Any], format_name: str, *, ladder: bool = False) -> None:
    """Prints a document in one of the report formats; colours on a terminal, unless NO_COLOR is set."""
    from parityscope.report import as_text, renderer

    if format_name == "text":
        width, color = terminal()
        text = as_text.render(document, width=width, color=color, ladder=ladder) + "\n"
        if color:
            print_drawn(text)
        else:
            print(text, end="")
    else:
        print(renderer(format_name).render(document))


def exit_code(document: dict[str, Any]) -> int:
    """0 within, 1 beyond, 3 when nothing is beyond but something that was asked for was not judged."""
    if document["verdict"] == "within" and any(skip.get("asked") for skip in document["skipped"]):
        return Exit.INCOMPLETE
    return EXIT_OF[document["verdict"]]


def redacted(document: dict[str, Any]) -> dict[str, Any]:
    """The document without paths, host and command line; digests and numbers stay."""
    changed = dict(document)
    changed["command"] = ""
    changed["environment"] = {}
    changed["question"] = {}
    changed["model"] = {**document["model"], "path": "", "name": "model"}
    changed["inputs"] = {**document["inputs"], "origin": "redacted"}
    for side in ("reference", "candidate"):
        target = document[side]["target"].partition("?")[0]
        changed[side] = {**document[side], "target": target, "environment": {}}
    for part in ("findings", "refuted", "skipped", "sequence"):
        changed[part] = _without(document.get(part), _places(document))
    return changed


def _places(document: dict[str, Any]) -> list[str]:
    """The paths that a document's sentences may name, the longest first."""
    from parityscope.backends.targets import parse_target

    targets = [parse_target(document[side]["target"]) for side in ("reference", "candidate")]
    named = [value for target in targets for _, value in target.options if os.sep in value]
    folder = document.get("question", {}).get("folder", "")
    named += [str(document["model"]["path"]), folder, *([str(Path(one).parent) for one in named])]
    return sorted({one for one in named if len(one) > 1 and os.sep in one}, key=lambda one: -len(one))


def _without(value: Any, places: list[str]) -> Any:
    """Plain data whose texts name none of the places, neither as they are nor percent-encoded."""
    if isinstance(value, dict):
        return {key: _without(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, places) for item in value]
    if isinstance(value, str):
        for place in places:
            value = value.replace(quote(place, safe=""), "REDACTED").replace(place, "REDACTED")
    return value
