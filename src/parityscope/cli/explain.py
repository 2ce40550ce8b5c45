"""`parityscope explain`: the page of a check, of a lint rule or of what a log says."""

from __future__ import annotations

from typing import Annotated

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "explain"


def command(code: Annotated[str, typer.Argument(help="A code, e.g. RNG001.", show_default=False)]) -> int:
    """Prints the documentation page of a check, of a lint rule or of what a log says."""
    from parityscope.checks import check_page, checks
    from parityscope.lint import rule_page, rules
    from parityscope.logs.pages import log_codes, log_page

    checked, linted, logged = checks(), rules(), log_codes()
    if code not in checked and code not in linted and code not in logged:
        known = ", ".join(sorted((*checked, *linted, *logged)))
        raise ParityError(f"there is no check or rule {code!r}", fix=f"use one of: {known}")
    print(check_page(code) if code in checked else rule_page(code) if code in linted else log_page(code))
    return Exit.WITHIN
