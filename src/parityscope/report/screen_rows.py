"""A row of a first screen, and how its text gives way where there is no room: names first, then what stands beside the point."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parityscope.languages import columns_of, say_in_language
from parityscope.report.words import LONGEST_NAME, clean, name_once, shorten_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Row = dict[str, str]
# Characters of an answer, of a further cause, and of what has one line; chosen: three lines, two and one of a terminal.
LONGEST, SHORTER, LINE = 290, 170, 84
MOST_NOTES = 2
_BRACKETS = re.compile(r" \([^()]*\)|（[^（）]*）")  # noqa: RUF001 - as Chinese has them
# Between two statements of a text.
_BETWEEN = re.compile(r"; |；|(?<=[a-z0-9)'\"%])\. (?=['A-Z])|。(?=.)")  # noqa: RUF001 - as Chinese has them
_GAP = " … "


def make_row(label: str, text: str, *, command: str = "", note: str = "") -> Row:
    """A row of the first screen as plain data."""
    return {"label": label, "text": text, "command": command, "note": note}


def rows_of_missing(skipped: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """The first of what was asked for and not done, with the fix; `skipped` as `view_skips` gives it."""
    for skip in [one for one in skipped if one["asked"]][:MOST_NOTES]:
        note = f"fix: {skip['fix']}" if skip["fix"] else ""
        yield make_row("Missing", cut_text(f"{skip['what']}: {skip['reason']}", SHORTER), note=note)


def first_sentence(text: object) -> str:
    """The first sentence of a claim, without its full stop."""
    claim = clean(text)
    return re.split(r"(?<=[a-z0-9)'\"%])\. (?=['A-Z0-9])", claim, maxsplit=1)[0].removesuffix(".")


def cut_text(text: str, longest: int = LONGEST) -> str:
    """A sentence in the language that is spoken, as short as there is room: whole, or without its middle.

    Names give way before words do (what tells them apart stands at their ends), then what is said in brackets, then what is
    said after the first statement. Of a statement that is still too long its start and its end are left.
    """
    told = name_once(say_in_language(text))
    told = " ".join(shorten_name(word, LONGEST_NAME) for word in told.split(" "))
    while columns_of(told) > longest and (shorter := without_bracket(told)) != told:
        told = shorter
    while columns_of(told) > longest and (places := list(_BETWEEN.finditer(told))):
        told = told[: places[-1].start()]
    return told if columns_of(told) <= longest else _without_middle(told, longest)


def without_bracket(text: str) -> str:
    """A sentence in the language that is spoken, without what it says last in brackets; as it is where it says nothing so."""
    told = say_in_language(text)
    places = list(_BRACKETS.finditer(told))
    return told[: places[-1].start()] + told[places[-1].end() :] if places else told


def _without_middle(text: str, longest: int) -> str:
    """The first two thirds of what has room, and of its end the last; cut between words, in Chinese between signs."""
    kept = longest * len(text) // columns_of(text) - len(_GAP)
    head, tail = text[: kept * 2 // 3], text[len(text) - kept // 3 :]
    return f"{head.rpartition(' ')[0] or head}{_GAP}{tail.partition(' ')[2] or tail}"
