"""`parityscope matrix`: models x versions x targets x settings as one table, what changed since the last run first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.progress import name_caller

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer
    from parityscope.study.checking.running import PairOutcome

NAME = "matrix"


def command(
    file: Annotated[
        Path, typer.Argument(help="A .toml file with a [matrix] table (docs/matrix.md).", show_default=False)
    ],
    *,
    study: Annotated[
        Path | None, typer.Option(help="Folder of the studies; the same goes on [parityscope-matrix-<UTC time>].")
    ] = None,
    told: Answer,
    no_causes: Annotated[bool, typer.Option("--no-causes", help="Do not diagnose what fails.")] = False,
    workers: o.WorkersOption = "",
    memory: o.MemoryOption = "512MiB",
) -> int:
    """Examines every cell and tells first what changed since the last run: verdicts, errors, causes, latencies.

    Exit code 0 if all are within and none is worse than in the last run, 1 if one is not, 2 if one could not be examined, 3 if
    one could not be judged.
    """
    from parityscope.api.shared.suites import SuiteAsked, report_matrix
    from parityscope.report.matrix import FORMS

    told.claim(FORMS)

    def tell_cell(title: str, outcome: PairOutcome) -> None:
        if not told.quiet:
            print(f"{outcome.status}: {title}", file=sys.stderr, flush=True)

    asked = SuiteAsked(
        folder=o.folder_for("matrix", study),
        with_causes=not no_causes,
        memory=o.size_of(memory),
        workers=o.workers_of(workers),
        seen=tell_cell,
    )
    found = report_matrix(file, asked, caller=name_caller(quiet=told.quiet))
    told.hand_over(FORMS, found.document)
    if not told.quiet:
        print(f"{found.verdict}; the studies are in {asked.folder}", file=sys.stderr)
    return found.exit
