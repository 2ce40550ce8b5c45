"""`parityscope explain`: the page of a code that a finding can have; all of them in a table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command"]

NAME = "explain"


def command(
    code: Annotated[
        str | None, typer.Argument(help="A code, e.g. RNG001; without one, all.", show_default=False)
    ] = None,
    *,
    told: Answer,
) -> int:
    """Prints the documentation page of a check, of a lint rule or of what a log says, or the table of all codes."""
    from parityscope.catalogue import WORDS, whole_catalogue
    from parityscope.report.forms import plain_forms

    forms = plain_forms("explain", _list_lines)
    told.claim(forms)
    known = whole_catalogue()
    told.hand_over(
        forms,
        {"code": code.upper(), "page": _page_of(code)}
        if code is not None
        else {"codes": {one.code: one.title for one in known.values()}, "words": dict(WORDS)},
    )
    return Exit.WITHIN


def _page_of(asked: str) -> str:
    """The page of a code or of a word.

    Raises:
        ParityError: there is none.
    """
    from parityscope.catalogue import WORDS, whole_catalogue

    known, code = whole_catalogue(), asked.upper()
    if code in WORDS:
        return WORDS[code]
    if code not in known:
        near = [one for one in known if one[:3] == code[:3]] or get_close_matches(code, [*known, *WORDS], n=5)
        fix = f"use one of: {', '.join(near)}" if near else "parityscope explain, without a code, names them all"
        raise ParityError(f"there is no check or rule {asked!r}", fix=fix)
    return known[code].page()


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    from parityscope.catalogue import lines_by_family, whole_catalogue

    if "page" in document:
        yield from document["page"].split("\n")
        return
    yield from lines_by_family(list(whole_catalogue().values()))
    yield ""
    yield "What else a report can say"
    yield from (f"  {word:<6}  {page.partition('.')[0]}" for word, page in document["words"].items())
