"""What was checked as workflow commands of GitHub Actions: a line a pair in the log, annotations for what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._console import write_to_console
from parityscope.report.as_github import annotate_study, quiet_lines, workflow_command
from parityscope.report.check.text import print_check
from parityscope.report.check.view import view_check, view_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TITLES = {"worse": "Worse than the baseline", "error": "Could not be examined"}


def check_as_github(document: Mapping[str, Any]) -> str:
    """`document` as lines of text."""
    return "\n".join(_list_lines(document)) + "\n"


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from quiet_lines(write_to_console(print_check, view_check(document), width=100, color=False))
    for pair in document["pairs"]:
        view = view_pair(pair)
        if pair["study"] is not None:
            yield from annotate_study(pair["study"])
        if pair["status"] in _TITLES:
            yield workflow_command("error", f"{_TITLES[pair['status']]}: {view['name']}", view["told"])
