"""The study as Markdown: the answer, the outputs and the causes, for a pull request, an issue or a job's summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report._markup import escape_markup, fence_lines
from parityscope.report._tensors import GRADES
from parityscope.report.as_text import plain_first_screen
from parityscope.report.words import as_number, clean, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SYMBOLS = {"within": "✓", "beyond": "✕"}
_MOST = 30  # outputs in the table; chosen, a screen


def render_markdown(document: Mapping[str, Any]) -> str:
    """The report as text."""
    return "\n".join(_list_lines(document)) + "\n"


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    title, *rest = plain_first_screen(document, width=1000).splitlines()
    yield f"### {escape_markup(title)}"
    yield ""
    if rest:
        yield from fence_lines(rest)
        yield ""
    yield from _table_of_outputs(document.get("outputs", ()))
    yield from _list_causes(
        [one for one in document.get("findings", ()) if one.get("role") in {"cause", "contributing"}]
    )


def _table_of_outputs(outputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not outputs:
        return
    yield "| | output | differs by (relative L2) | as close as |"
    yield "| --- | --- | --- | --- |"
    for one in outputs[:_MOST]:
        error = as_number(one.get("rel_l2"))
        told = "not compared" if error is None else format_percent(error, exact=True)
        verdict, grade = str(one.get("verdict")), str(one.get("grade") or "")
        named = "" if verdict == "beyond" and grade == "beyond" else GRADES.get(grade, clean(grade))
        yield (
            f"| {_SYMBOLS.get(verdict, '?')} | {escape_markup(clean(one.get('name', '')))} | "
            f"{escape_markup(told)} | {escape_markup(named)} |"
        )
    if len(outputs) > _MOST:
        yield f"\n{len(outputs) - _MOST} more outputs are in the report."


def _list_causes(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in findings:
        claim = escape_markup(clean(one.get("claim") or one.get("title") or ""))
        share = as_number(one.get("share"))
        explains = "" if share is None else f" It explains {format_percent(share)} of the output error."
        yield ""
        yield f"- **{escape_markup(clean(one.get('code', '')))}** {claim}{explains}"


RENDERER = Renderer(name="markdown", suffix=".md", render=render_markdown)
