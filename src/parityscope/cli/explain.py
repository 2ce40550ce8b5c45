"""`parityscope explain`: the page of a code that a finding can have; all of them in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "explain"


def command(
    code: Annotated[
        str | None, typer.Argument(help="A code, e.g. RNG001; without one, all.", show_default=False)
    ] = None,
    *,
    told: Answer,
) -> int:
    """Prints the documentation page of a check, of a lint rule or of what a log says, or the table of all codes."""
    from parityscope.api.shared.machine import report_page
    from parityscope.report.explained import FORMS

    told.claim(FORMS)
    found = report_page(code)
    told.hand_over(FORMS, found.document)
    return found.exit
