"""`parityscope matrix`: models x versions x targets x settings as one table, what changed since the last run first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import check_writable, command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import EXIT_OF, Exit

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

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
    from parityscope.report import renderer_named
    from parityscope.report.matrix import FORMS, matrix_document
    from parityscope.study.checking.baseline import read_baseline, update_baseline
    from parityscope.study.checking.matrix import cell_entry, read_matrix_file
    from parityscope.study.checking.running import CheckSettings, check_pair
    from parityscope.version import __version__

    told.claim(FORMS)
    held = read_matrix_file(file, o.size_of(memory))
    last = read_baseline(held.last)
    folder = o.folder_for("matrix", study)
    check_writable(folder, "--study")
    check_writable(held.last.parent, "place for the file")
    settings = CheckSettings(
        folder=folder,
        as_html=renderer_named("html").render,
        command=command_line(),
        with_causes=not no_causes,
        progress=progress_for(quiet=told.quiet),
        workers=o.workers_of(workers),
        timed=True,
    )
    outcomes = []
    try:
        for cell in held.cells:
            outcomes.append(check_pair(cell.pair, last.get(cell.pair.name), settings))
            if not told.quiet:
                print(f"{outcomes[-1].status}: {cell.row}, {cell.column}", file=sys.stderr, flush=True)
    except KeyboardInterrupt as interrupt:
        words = f"interrupted; {len(outcomes)} of {len(held.cells)} cells are done\n  fix:   the same command with "
        words += f"--study {settings.folder} goes on from there"
        # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
        raise typer.Abort from KeyboardInterrupt(words).with_traceback(interrupt.__traceback__)
    document = matrix_document(held, outcomes, last, version=__version__, command=command_line())
    told.hand_over(FORMS, document)
    if any(one.study is not None for one in outcomes):
        update_baseline(held.last, {cell.pair.name for cell in held.cells}, outcomes, cell_entry)
    if not told.quiet:
        print(f"{document['verdict']}; the studies are in {settings.folder}", file=sys.stderr)
    return Exit.UNUSABLE if document["verdict"] == "error" else EXIT_OF[document["verdict"]]
