"""`parityscope check`: every pair of a policy file, held against its policy and against a baseline in the repository."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import command_line, print_document, print_text, terminal_width
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import EXIT_OF, Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.cli.shell.answering import Answer
    from parityscope.study.checking.pairs import CheckedPair
    from parityscope.study.checking.running import CheckSettings, PairOutcome

__all__ = ["NAME", "command"]

NAME = "check"


def command(
    file: Annotated[Path, typer.Argument(help="A policy file with [[check]] tables (docs/teams.md).")] = (
        Path("parityscope.toml")
    ),
    *,
    baseline: Annotated[Path | None, typer.Option(help="The baseline [the file's, or parity-baseline.json].")] = None,
    update: Annotated[bool, typer.Option("--update", help="Write what was measured as the baseline.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="The name of a check; repeatable.")] = None,
    study: Annotated[
        Path | None, typer.Option(help="Folder of the studies; the same goes on [parityscope-check-<UTC time>].")
    ] = None,
    told: Answer,
    no_causes: Annotated[bool, typer.Option("--no-causes", help="Do not diagnose what fails.")] = False,
    memory: o.MemoryOption = "512MiB",
) -> int:
    """Examines every model and target of a policy file: a line each, against the policy and against the baseline.

    Exit code 0 if all are within and none is worse than the baseline, 1 if one is not, 2 if one could not be examined, 3 if one
    could not be judged.
    """
    from parityscope.report import renderer_named
    from parityscope.report.check import FORMS, check_document
    from parityscope.report.check.text import summary_as_text
    from parityscope.study.checking.baseline import read_baseline, update_baseline
    from parityscope.study.checking.pairs import choose_pairs, read_check_file
    from parityscope.study.checking.running import CheckSettings
    from parityscope.version import __version__

    told.claim(FORMS)
    held = read_check_file(file, o.size_of(memory))
    pairs = choose_pairs(held.pairs, only or [], file)
    place = baseline or held.baseline
    entries = read_baseline(place)
    if update:
        _check_writable(place, told.output)
    settings = CheckSettings(
        folder=o.folder_for("check", study),
        as_html=renderer_named("html").render,
        command=command_line(),
        with_causes=not no_causes,
        progress=progress_for(quiet=told.quiet),
    )
    outcomes = _run_pairs(pairs, entries, settings, live=told.format_name == "text")
    updated = update and any(one.study is not None for one in outcomes)
    document = check_document(
        held, outcomes, baseline=place, updated=updated, version=__version__, command=command_line()
    )
    told.write(FORMS, document)
    width, color = terminal_width()
    if told.format_name == "text":
        print_text(summary_as_text(document, width=width, color=color), drawn=color)
    else:
        print_document(FORMS, document, told.format_name)
    if updated:
        update_baseline(place, [one.name for one in held.pairs], outcomes)
    if not told.quiet:
        written = f"; the baseline is written to {place}" if updated else ""
        print(f"{document['verdict']}; the studies are in {settings.folder}{written}", file=sys.stderr)
    return Exit.UNUSABLE if document["verdict"] == "error" else EXIT_OF[document["verdict"]]


def _run_pairs(
    pairs: Sequence[CheckedPair], entries: dict[str, dict[str, Any]], settings: CheckSettings, *, live: bool
) -> list[PairOutcome]:
    """Examines one after the other; with `live` a line is printed as soon as it is known."""
    from parityscope.report.check.document import pair_as_data
    from parityscope.report.check.text import pair_as_text
    from parityscope.study.checking.running import check_pair

    color = terminal_width()[1]
    found: list[PairOutcome] = []
    try:
        for pair in pairs:
            found.append(check_pair(pair, entries.get(pair.name), settings))
            if live:
                print_text(pair_as_text(pair_as_data(found[-1]), color=color), drawn=color)
                sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        words = f"interrupted; {len(found)} of {len(pairs)} checks are done"
        if found:
            words += f"\n  fix:   the same command with --study {settings.folder} goes on from there"
        # A bare interrupt becomes an exit code inside typer, and what it says would be lost.
        raise typer.Abort from KeyboardInterrupt(words).with_traceback(interrupt.__traceback__)
    return found


def _check_writable(place: Path, reports: Sequence[Path]) -> None:
    """Refuses, before the work is done, a baseline that could not be written behind it."""
    file = place.resolve()
    if any(one.resolve() == file for one in reports):
        why = "it is given to -o as well"
    elif not file.parent.is_dir():
        why = f"there is no folder {file.parent}"
    elif not os.access(file.parent, os.W_OK):
        why = os.strerror(errno.EACCES)
    else:
        return
    raise ParityError(f"the baseline cannot be written: {why}", where=str(place), fix="choose another --baseline")
