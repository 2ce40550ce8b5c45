"""The study as workflow commands of GitHub Actions: annotations on the run, one a cause, and the first screen in the log.

An output beyond is an error; what could not be judged is a warning. A line that the workflow would take for a command cannot come
from a name in a model: its percent signs and line breaks are escaped as the commands want it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report.as_text import plain_first_screen
from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def render_github(document: Mapping[str, Any]) -> str:
    """The report as lines of text."""
    return "\n".join(_list_lines(document)) + "\n"


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from quiet_lines(plain_first_screen(document))
    yield from annotate_study(document)


def quiet_lines(text: str) -> Iterator[str]:
    """Lines for the log, none of which is taken for a command."""
    yield from (f" {line}" if line.startswith("::") else line for line in text.splitlines())


def annotate_study(document: Mapping[str, Any]) -> Iterator[str]:
    """The annotations of a study."""
    causes = [one for one in document.get("findings", ()) if one.get("role") == "cause"]
    if document.get("verdict") == "beyond":
        for one in causes:
            yield workflow_command(
                "error", f"{clean(one.get('code', ''))} {clean(one.get('title', ''))}", clean(one.get("claim", ""))
            )
        if not causes:
            yield workflow_command("error", "Outputs differ by more than they may", plain_first_screen(document))
    for one in document.get("skipped", ()):
        if one.get("asked"):
            what, reason = clean(one.get("what", "")), clean(one.get("reason", ""))
            yield workflow_command("warning", "Not examined", f"{what}: {reason}")


def workflow_command(kind: str, title: str, text: str) -> str:
    """An annotation: `kind` is error, warning or notice."""
    return f"::{kind} title={_escape_property(title)}::{_escape_data(text)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


RENDERER = Renderer(name="github", suffix=".github.txt", render=render_github)
