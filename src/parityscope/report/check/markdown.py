"""What was checked as Markdown, for a pull request or the summary of a job: a table of the pairs, then each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._markup import escape_markup, fence_lines, markdown_table
from parityscope.report.check.view import describe_summary, view_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST = 200  # rows of the table; chosen


def check_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(document)) + "\n"


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    pairs = [view_pair(one) for one in document["pairs"]]
    yield f"### {escape_markup(say_in_language(describe_summary(document)))}"
    rows = [(one["symbol"], one["name"], one["told"], one["seconds"]) for one in pairs]
    yield from markdown_table(("", "check", "answer", "took"), rows, most=_MOST)
    for one in pairs:
        if one["failed"]:
            yield ""
            yield f"#### {escape_markup(one['name'])}"
            yield ""
            yield from fence_lines(one["screen"].splitlines())
