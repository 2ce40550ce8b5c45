"""`parityscope diff`: what became better or worse between two studies, and what else is not the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.cli.shell.progress import name_caller

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "diff"


def command(
    before: Annotated[Path, typer.Argument(help="The folder of the earlier study.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="The folder of the later one.", show_default=False)],
    *,
    answer: Answer,
) -> int:
    """What became better or worse between two studies, beyond noise, and since which version or setting.

    Exit code 0 if nothing is worse, 1 if something is, 2 if they cannot be compared, 3 if a part of them cannot.
    """
    from parityscope.api.shared.studies import report_changes
    from parityscope.report.diff import FORMS
    from parityscope.study import as_written, load_study

    answer.claim(FORMS)
    first, second = load_study(before), load_study(after)
    found = report_changes(first, second, (str(before), str(after)), name_caller(quiet=answer.quiet))
    with as_written():
        answer.hand_over(FORMS, found.document)
    if answer.format_name != "text":
        answer.summarize(found.verdict)
    return found.exit
