"""Writes a study's folder and prints the result: shared by diagnose, compare and localize.

A study to give away: what the document's schema allows, and sentences without the paths of this machine.

A text of the document is left only where `study.schema.json` says how. In sentences, whatever names a file or folder of this
machine, or its host, is replaced: what the study itself names as a path, and every word that begins at a folder
that is there.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from parityscope.api.results import exit_of_document
from parityscope.api.saving import write_study_file
from parityscope.cli._options import folder_for
from parityscope.cli.shell.output import claim_file, terminal_width
from parityscope.cli.shell.streams import print_drawn
from parityscope.cli.shell.supervise import stop_if_interrupted
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LEFT = "REDACTED"
_PATH = re.compile(r"""(?<![\w.\-/])(?:file:/+)?/[^\s'"`,;:()\[\]{}<>]+""")
_SHORTEST = 3  # characters: what is shorter stands in other words as well; chosen


def _redact_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without paths, host, command line, environment and what was asked; digests, names and numbers stay."""
    from parityscope.study.schema import share_document

    places = sorted(_places_named(document), key=len, reverse=True)
    return share_document(
        document,
        {
            "kept": str,
            "sentence": lambda text: _without_paths(text, places),
            "target": lambda text: text.partition("?")[0],
            "model": lambda _: "model",
        },
    )


def _places_named(document: Mapping[str, Any]) -> set[str]:
    """What this study names that is of this machine, and its host."""
    from parityscope.backends.targets import parse_target

    question = document.get("question", {})
    asked = question.get("asked", {})
    named = [
        str(document["model"]["path"]),
        str(question.get("folder", "")),
        platform.node(),
        str(Path.home()),
    ]
    named += [str(asked.get(name) or "") for name in ("model", "inputs", "images", "real", "preprocess")]
    for side in ("reference", "candidate"):
        named += [
            value for _, value in parse_target(document[side]["target"]).options if os.sep in value or "." in value
        ]
    parents = [str(Path(one).parent) for one in named if os.sep in one]
    files = [part for one in named if Path(one).suffix for part in (Path(one).name, Path(one).stem)]
    return {form for one in (*named, *parents, *files) if len(one) > _SHORTEST for form in (one, quote(one, safe=""))}


def _without_paths(text: str, places: list[str]) -> str:
    for place in places:
        text = text.replace(place, _LEFT)
    return "".join(_pieces_left(text))


def _pieces_left(text: str) -> Iterator[str]:
    """The text, its absolute paths left out: names of tensors begin with a slash too, but with no folder that is there."""
    end = 0
    for found in _PATH.finditer(text):
        first = "/" + found[0].removeprefix("file:").lstrip("/").partition("/")[0]
        if not Path(first).exists():
            continue
        yield text[end : found.start()]
        yield _LEFT
        end = found.end()
    yield text[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How a study is handed over: its folder (None: a new one), what stdout gets, files as well, and what of it is kept.

    `whole` prints everything that was found, `ladder` which tensors exceed which tolerance.
    """

    study: Path | None = None
    format_name: str = "text"
    output: tuple[Path, ...] = ()
    keep_tensors: bool = False
    redact: bool = False
    quiet: bool = False
    whole: bool = False
    ladder: bool = False


def finish_study(
    model: Path,
    delivery: Delivery,
    examine: Callable[[Path, Callable[[dict[str, Any]], None]], dict[str, Any]],
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Examines into a scratch folder, writes study.json and report.html there, and makes it the study.

    `examine` is given the folder for tensors, and what keeps a document of what is known so far, for a process that is ended.
    With `facts` of the run, the scratch folder of an interrupted one is resumed. A folder that nobody named is called after
    `model`, and gets a number where it is taken.
    """
    from parityscope.report import renderer_for, renderer_named
    from parityscope.report.as_html import render_html
    from parityscope.study import COLUMNS, folder_of, name_files_from_here, prepare_folder, write_study

    wanted = renderer_named(delivery.format_name)
    for path in delivery.output:
        renderer_for(path.name)
        claim_file(path, "-o")
    folder = folder_for(model.stem, delivery.study)
    with prepare_folder(folder, facts, numbered=delivery.study is None) as scratch:
        folder = folder_of(scratch)
        tensors = scratch / "tensors"
        tensors.mkdir(parents=True, exist_ok=True)
        document = examine(tensors, partial(_keep_known, scratch, delivery))
        for held in (tensors / "repaired.onnx", tensors / COLUMNS):
            if held.exists() and not delivery.redact:
                held.rename(scratch / held.name)
        if delivery.redact:
            document = _redact_document(document)
        kept = delivery.keep_tensors and not delivery.redact and any(tensors.iterdir())
        if not kept:
            shutil.rmtree(tensors, ignore_errors=True)
        stop_if_interrupted()  # what was ended may have become a `Skip`
        write_study(scratch, document, render_html)
    for path in delivery.output:
        write_study_file(name_files_from_here(document, folder), path)
    show_document(document, wanted.name, folder, ladder=delivery.ladder, whole=delivery.whole)
    if delivery.keep_tensors and not (kept or delivery.redact or delivery.quiet):
        print("no tensors are kept: none were written down", file=sys.stderr)
    if not delivery.quiet and (delivery.whole or delivery.ladder or wanted.name != "text"):
        print(f"{document['verdict']}; the report is {folder / 'report.html'}", file=sys.stderr)
    return exit_of_document(document)


def _keep_known(scratch: Path, delivery: Delivery, document: dict[str, Any]) -> None:
    from parityscope.forking import tell_parent
    from parityscope.study import write_known

    write_known(scratch, _redact_document(document) if delivery.redact else document)
    tell_parent(str(scratch))


def show_document(
    document: dict[str, Any], format_name: str, folder: Path, *, ladder: bool = False, whole: bool = False
) -> None:
    """Prints the document of the study in `folder` in one of the report formats; colours on a terminal, unless NO_COLOR is set.

    Text is the first screen, which names the report for the rest, or with `whole` or `ladder` everything.
    """
    from parityscope.report import as_text, renderer_named
    from parityscope.study import name_files_from_here

    document = name_files_from_here(document, folder)
    if format_name != "text":
        print(renderer_named(format_name).render(document))
        return
    width, color = terminal_width()
    if whole or ladder:
        text = as_text.render_text(document, study=shlex.quote(str(folder)), width=width, color=color, ladder=ladder)
        text += "\n"
    else:
        text = as_text.render_first_screen(document, where=str(folder / "report.html"), width=width, color=color)
    if color:
        print_drawn(text)
    else:
        print(text, end="")
