"""`parityscope list`: catalogues of plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "list"


def command(
    kind: Annotated[
        str | None,
        typer.Argument(help="backends, checks, rules, metrics, repairs or formats; all, if none.", show_default=False),
    ] = None,
    *,
    told: Answer,
) -> int:
    """Lists what there is of a kind of plug-in, or of every kind."""
    from parityscope.api.shared.machine import report_plugins
    from parityscope.report.listed_plugins import FORMS

    told.claim(FORMS)
    found = report_plugins(kind)
    told.hand_over(FORMS, found.document)
    return found.exit
