"""`parityscope explain`: the page of a code that a finding can have; all of them in a table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "explain"


def command(
    code: Annotated[
        str | None, typer.Argument(help="A code, e.g. RNG001; without one, all.", show_default=False)
    ] = None,
) -> int:
    """Prints the documentation page of a check, of a lint rule or of what a log says, or the table of all codes."""
    from parityscope.catalogue import WORDS, lines_by_family, whole_catalogue

    known = whole_catalogue()
    if code is None:
        print("\n".join(lines_by_family(list(known.values()))))
        print("\nWhat else a report can say")
        print("\n".join(f"  {word:<6}  {page.partition('.')[0]}" for word, page in WORDS.items()))
        return Exit.WITHIN
    asked, code = code, code.upper()
    if code in WORDS:
        print(WORDS[code])
        return Exit.WITHIN
    if code not in known:
        near = [one for one in known if one[:3] == code[:3]] or get_close_matches(code, [*known, *WORDS], n=5)
        fix = f"use one of: {', '.join(near)}" if near else "parityscope explain, without a code, names them all"
        raise ParityError(f"there is no check or rule {asked!r}", fix=fix)
    print(known[code].page())
    return Exit.WITHIN
