"""`parityscope diff`: what became better or worse between two studies, and what else is not the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parityscope.cli import _options as o
from parityscope.cli.shell.output import claim_report, command_line, hand_over
from parityscope.errors import Exit

__all__ = ["NAME", "command"]

NAME = "diff"

_EXITS = {"worse": Exit.BEYOND, "incomplete": Exit.INCOMPLETE, "better": Exit.WITHIN, "same": Exit.WITHIN}


def command(
    before: Annotated[Path, typer.Argument(help="The folder of the earlier study.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="The folder of the later one.", show_default=False)],
    *,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text, json, html or markdown.")] = (
        "text"
    ),
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .html, .json, .md or .txt file as well.")
    ] = None,
    quiet: o.QuietOption = False,
) -> int:
    """What became better or worse between two studies, beyond noise, and since which version or setting.

    Exit code 0 if nothing is worse, 1 if something is, 2 if they cannot be compared, 3 if a part of them cannot.
    """
    from parityscope.report.diff import FORMS, changes_document
    from parityscope.study import as_written, list_errors, load_study
    from parityscope.study.changes.comparing import compare_studies
    from parityscope.version import __version__

    FORMS.check(format_name)
    claim_report(output, "-o", FORMS)
    studies = [load_study(place) for place in (before, after)]
    with as_written():
        first, second = (list_errors(one.document, one.folder) for one in studies)
        found = compare_studies(first, second)
        places = (str(before), str(after))
        held = changes_document(found, first, second, places=places, version=__version__, command=command_line())
        hand_over(FORMS, held, format_name, output)
    if not quiet and format_name != "text":
        print(f"{found.verdict}{f'; the report is {output}' if output else ''}", file=sys.stderr)
    return _EXITS[found.verdict]
