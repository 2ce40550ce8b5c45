"""`parityscope check`: every pair of a policy file, held against its policy and against a baseline in the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import print_document, print_text, terminal_width
from parityscope.cli.shell.progress import name_caller

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer
    from parityscope.study.checking.running import PairOutcome

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
    from parityscope.api.shared.suites import BaselineAsked, SuiteAsked, report_check
    from parityscope.report.check import FORMS, pair_as_data, pair_as_text, summary_as_text

    told.claim(FORMS)
    width, color = terminal_width()

    def tell_pair(_title: str, outcome: PairOutcome) -> None:
        if told.format_name == "text":
            print_text(pair_as_text(pair_as_data(outcome), color=color), drawn=color)
            sys.stdout.flush()

    asked = SuiteAsked(
        folder=o.folder_for("check", study), with_causes=not no_causes, memory=o.size_of(memory), seen=tell_pair
    )
    held_against = BaselineAsked(only=only or (), place=baseline, update=update, reports=told.output)
    found = report_check(file, asked, held_against, caller=name_caller(quiet=told.quiet))
    told.write(FORMS, found.document)
    if told.format_name == "text":
        print_text(summary_as_text(found.document, width=width, color=color), drawn=color)
    else:
        print_document(FORMS, found.document, told.format_name)
    if not told.quiet:
        written = f"; the baseline is written to {found.document['baseline']}" if found.document["updated"] else ""
        print(f"{found.verdict}; the studies are in {asked.folder}{written}", file=sys.stderr)
    return found.exit
