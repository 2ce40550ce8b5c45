"""What changed as Markdown, for a pull request: the answer, then a table of the outputs that changed and of what else did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._markup import escape_markup, markdown_table
from parityscope.report.diff.view import view_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST = 30  # rows of a table; chosen, a screen


def changes_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(view_changes(document))) + "\n"


def _list_lines(view: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {view['symbol']} {escape_markup(view['model'])}: {escape_markup(say_in_language(view['title']))}"
    yield ""
    yield escape_markup(view["basis"])
    outputs = [one for one in view["outputs"] if one["change"] != "same"]
    yield from markdown_table(
        ("output", "change", "verdict", "differs by (relative L2)"),
        [(one["name"], one["change"], one["verdicts"], one["errors"]) for one in outputs],
        most=_MOST,
    )
    yield from markdown_table(
        ("changed", "was", "now", "why that may matter"),
        [(f"{one['place']} {one['name']}", one["before"], one["after"], one["matters"]) for one in view["facts"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("cause", "", "at"),
        [(one["change"], f"{one['code']} {one['title']}", one["place"]) for one in view["causes"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("layer", "operator", "error"),
        [(one["node"], one["op_type"], one["errors"]) for one in view["layers"]],
        most=_MOST,
    )
    yield from markdown_table(
        ("not compared", "why"), [(one["what"], one["reason"]) for one in view["skipped"]], most=_MOST
    )
