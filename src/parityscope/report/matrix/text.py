"""A matrix for a terminal, and as Markdown for the summary of a job: what changed first, then the table, then each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_paragraph
from parityscope.report._markup import escape_markup, fence_lines, markdown_table
from parityscope.report.check.text import print_pair
from parityscope.report.matrix.view import view_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

_MOST = 500  # rows of a table; chosen
_NOTHING_NEW = "Nothing is otherwise than in the last run"


def print_matrix(console: Console, model: Mapping[str, Any]) -> None:
    """Writes the differences, a line a cell under its row, what is wrong with each that fails, and the summary."""
    from rich.text import Text

    print_paragraph(console, _NOTHING_NEW if model["same"] else model["since"], "bold")
    for one in model["differences"]:
        console.print(Text(f"  {one}"), soft_wrap=True)
    for row, cells in model["rows"]:
        console.print(Text(row, "bold"), soft_wrap=True)
        for column, told in zip(model["columns"], cells, strict=True):
            if told:
                console.print(Text(f"  {told}  {column}"), soft_wrap=True)
    for one in model["failed"]:
        print_pair(console, one)
    print_paragraph(console, model["title"], VERDICT_STYLES[model["css"]])


def matrix_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(view_matrix(document))) + "\n"


def _list_lines(model: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {escape_markup(say_in_language(_NOTHING_NEW if model['same'] else model['since']))}"
    yield ""
    yield from (f"- {escape_markup(one)}" for one in model["differences"])
    yield ""
    yield f"### {escape_markup(say_in_language(model['title']))}"
    rows = [(row, *cells) for row, cells in model["rows"]]
    yield from markdown_table(("", *model["columns"]), rows, most=_MOST)
    for one in model["failed"]:
        yield ""
        yield f"#### {escape_markup(one['name'])}"
        yield ""
        yield from fence_lines(one["screen"].splitlines())
