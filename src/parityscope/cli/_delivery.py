"""Writes a study's folder and prints the result: shared by diagnose, compare and localize."""

from __future__ import annotations

import shlex
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from parityscope.api.results import exit_of_document
from parityscope.api.saving import write_study_file
from parityscope.cli._options import folder_for
from parityscope.cli._redacting import redact_document
from parityscope.cli.shell.output import claim_file, terminal_width
from parityscope.cli.shell.streams import print_drawn
from parityscope.cli.shell.supervise import stop_if_interrupted
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


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
    try:
        with prepare_folder(folder, facts, numbered=delivery.study is None) as scratch:
            folder = folder_of(scratch)
            tensors = scratch / "tensors"
            tensors.mkdir(parents=True, exist_ok=True)
            document = examine(tensors, partial(_keep_known, scratch, delivery))
            for held in (tensors / "repaired.onnx", tensors / COLUMNS):
                if held.exists() and not delivery.redact:
                    held.rename(scratch / held.name)
            if delivery.redact:
                document = redact_document(document)
            kept = delivery.keep_tensors and not delivery.redact and any(tensors.iterdir())
            if not kept:
                shutil.rmtree(tensors, ignore_errors=True)
            stop_if_interrupted()  # what was ended may have become a `Skip`
            write_study(scratch, document, render_html)
    except KeyboardInterrupt as interrupt:
        # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
        raise typer.Abort from interrupt
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

    write_known(scratch, redact_document(document) if delivery.redact else document)
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
