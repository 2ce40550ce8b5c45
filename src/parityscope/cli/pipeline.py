"""`parityscope pipeline`: a chain of models, stage by stage, so that the first stage that differs is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import EXIT_OF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

NAME = "pipeline"


def command(
    file: Annotated[Path, typer.Argument(help="The stages (.toml, docs/pipelines.md).", show_default=False)],
    *,
    samples: o.SamplesOption = None,
    study: o.StudyOption = None,
    time: o.TimeOption = "",
    memory: o.MemoryOption = "512MiB",
    keep_tensors: o.KeepOption = False,
    told: Answer,
) -> int:
    """Holds every stage of a chain against its reference on what it was given, and examines the first that differs."""
    from parityscope.report.pipeline import FORMS
    from parityscope.study import examine_pipeline, folder_of, prepare_folder, read_pipeline

    told.claim(FORMS)
    pipeline = read_pipeline(file)
    seconds, budget = o.seconds_of(time), o.size_of(memory)
    with prepare_folder(o.folder_for(file.stem, study), numbered=study is None) as scratch:
        folder = folder_of(scratch)
        document, found = examine_pipeline(
            pipeline,
            folder=scratch / "tensors",
            samples=samples,
            memory=budget,
            seconds=seconds,
            command=command_line(),
            progress=progress_for(quiet=told.quiet),
        )
        _write_files(scratch, document, found, keep_tensors=keep_tensors)
    told.hand_over(FORMS, document)
    if not told.quiet:
        where = f"; {document['first']} is examined in {folder / 'report.html'}" if found else ""
        print(f"{document['verdict']}; the stages are in {folder / 'pipeline.json'}{where}", file=sys.stderr)
    return EXIT_OF[document["verdict"]]


def _write_files(
    folder: Path, document: Mapping[str, Any], found: dict[str, Any] | None, *, keep_tensors: bool
) -> None:
    """pipeline.json, and study.json with report.html for the stage that was examined in full."""
    import shutil

    from parityscope.report import renderer_named
    from parityscope.study import write_study

    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    (folder / "pipeline.json").write_text(text, encoding="utf-8")
    if found is not None:
        write_study(folder, found, renderer_named("html").render)
    if not keep_tensors:
        shutil.rmtree(folder / "tensors", ignore_errors=True)
