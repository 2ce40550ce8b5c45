"""`parityscope doctor`: what can run here and in what arithmetic, what is known to be bad, what is missing and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.errors import Exit

if TYPE_CHECKING:
    from parityscope.cli.shell.answering import Answer

NAME = "doctor"


def command(
    *,
    told: Answer,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Compile what is compiled once, so that no other command waits for it.")
    ] = False,
) -> int:
    """Lists what can run here and in what arithmetic, what is missing, and the facts about this machine that change results."""
    from parityscope.api.shared.machine import report_machine
    from parityscope.report.machine import FORMS

    told.claim(FORMS)
    if prepare:
        from parityscope.cli._preparing import prepare_machine

        for line in prepare_machine():
            print(line, flush=True)
        return Exit.WITHIN
    told.hand_over(FORMS, report_machine().document)
    return Exit.WITHIN
