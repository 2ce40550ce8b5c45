"""Markdown: text in which nothing is taken for markup, and tables of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parityscope.languages import say_in_language

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def escape_markup(text: str) -> str:
    """`text` in which nothing is taken for markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)


def fence_lines(lines: Sequence[str]) -> Iterator[str]:
    """Lines that are shown as they are."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from lines
    yield fence


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, most: int) -> Iterator[str]:
    """The lines of a table, behind an empty one, with at most so many rows; none where there is no row."""
    if not rows:
        return
    yield ""
    yield f"| {' | '.join(map(say_in_language, titles))} |"
    yield f"|{' --- |' * len(titles)}"
    for row in rows[:most]:
        yield f"| {' | '.join(escape_markup(say_in_language(cell)) for cell in row)} |"
    if len(rows) > most:
        yield ""
        yield say_in_language(f"{len(rows) - most} more are in the report.")
