"""`parityscope explain`: the page of a check."""

from __future__ import annotations

from typing import Annotated

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "explain"


def command(code: Annotated[str, typer.Argument(help="A code, e.g. RNG001.", show_default=False)]) -> int:
    """Prints the documentation page of a check."""
    from parityscope.checks import check_page, checks

    known = checks()
    if code not in known:
        raise ParityError(f"there is no check {code!r}", fix=f"use one of: {', '.join(known)}")
    print(check_page(code))
    return Exit.WITHIN
