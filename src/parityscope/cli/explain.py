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
    known = sorted((*checked, *linted, *logged))
    asked, code = code, code.upper()
    if code not in known:
        family = [one for one in known if one[:3] == code[:3]]
        fix = f"use one of: {', '.join(family)}" if family else "parityscope list checks and list rules name them all"
        raise ParityError(f"there is no check or rule {asked!r}", fix=fix)
    print(check_page(code) if code in checked else rule_page(code) if code in linted else log_page(code))
    return Exit.WITHIN
