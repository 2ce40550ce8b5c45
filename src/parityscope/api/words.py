"""The answer in words, and the exception that carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.api.results import Result

__all__ = ["ParityFailure", "told"]


class ParityFailure(AssertionError):  # noqa: N818 - a failed assertion, as test runners count them
    """Two deployments differ by more than they may; the message is the first screen, `result` the whole answer if it is known."""

    result: Result | None = None


def told(document: Mapping[str, Any], width: int) -> str:
    """The first screen of a study's document, without colour, without the line that points to the rest."""
    from parityscope.report.as_text import render_first_screen

    lines = render_first_screen(document, width=width).rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines if "--all shows everything here" not in line)
