"""`parityscope pipeline`: a chain of models, stage by stage, so that the first stage that differs is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

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
    from parityscope.api.shared.suites import report_pipeline
    from parityscope.report.pipeline import FORMS
    from parityscope.study import folder_of, prepare_folder

    told.claim(FORMS)
    seconds, budget = o.seconds_of(time), o.size_of(memory)
    with prepare_folder(o.folder_for(file.stem, study), numbered=study is None) as scratch:
        folder = folder_of(scratch)
        found = report_pipeline(
            file,
            scratch,
            samples=samples,
            seconds=seconds,
            memory=budget,
            keep_tensors=keep_tensors,
            caller=name_caller(quiet=told.quiet),
        )
    told.hand_over(FORMS, found.document)
    if not told.quiet:
        where = f"; {found.document['first']} is examined in {folder / 'report.html'}" if found.record else ""
        print(f"{found.verdict}; the stages are in {folder / 'pipeline.json'}{where}", file=sys.stderr)
    return found.exit
