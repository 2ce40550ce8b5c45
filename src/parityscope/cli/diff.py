"""`parityscope diff`: what became better or worse between two studies, and what else is not the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli.shell.output import command_line
from parityscope.errors import Exit

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

NAME = "diff"

_EXITS = {"worse": Exit.BEYOND, "incomplete": Exit.INCOMPLETE, "better": Exit.WITHIN, "same": Exit.WITHIN}


def command(
    before: Annotated[Path, typer.Argument(help="The folder of the earlier study.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="The folder of the later one.", show_default=False)],
    *,
    answer: Answer,
) -> int:
    """What became better or worse between two studies, beyond noise, and since which version or setting.

    Exit code 0 if nothing is worse, 1 if something is, 2 if they cannot be compared, 3 if a part of them cannot.
    """
    from parityscope.report.diff import FORMS, changes_document
    from parityscope.study import as_written, list_errors, load_study
    from parityscope.study.changes.comparing import compare_studies
    from parityscope.version import __version__

    answer.claim(FORMS)
    studies = [load_study(place) for place in (before, after)]
    with as_written():
        first, second = (list_errors(one.document, one.folder) for one in studies)
        found = compare_studies(first, second)
        places = (str(before), str(after))
        held = changes_document(found, first, second, places=places, version=__version__, command=command_line())
        answer.hand_over(FORMS, held)
    if answer.format_name != "text":
        answer.summarize(found.verdict)
    return _EXITS[found.verdict]
