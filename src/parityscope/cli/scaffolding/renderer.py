"""The outputs as a Markdown table, for an issue or a pull request.

Fill in: what your format is for and who reads it; then `render_table`. It takes the study's document (what
`study.json` holds, docs/index.md) and gives a text: no file, no clock, no environment. Names of tensors come from
other people's files: escape them as your format needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report.words import clean, format_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = "| output | relative L2 | grade | verdict |\n| --- | --- | --- | --- |\n"


def render_table(document: Mapping[str, Any]) -> str:
    """The verdict and a row for each output."""
    rows = [_table_row(output) for output in document.get("outputs", ())]
    return f"Verdict: **{document.get('verdict', 'incomplete')}**\n\n{_HEAD}{''.join(rows)}"


def _table_row(output: Mapping[str, Any]) -> str:
    cells = (
        _table_cell(output.get("name")),
        format_figure(output.get("rel_l2")),
        _table_cell(output.get("grade")),
        _table_cell(output.get("verdict")),
    )
    return f"| {' | '.join(cells)} |\n"


def _table_cell(value: object) -> str:
    text = clean("" if value is None else str(value))
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


RENDERER = Renderer(name="scaffold_name", suffix=".md", render=render_table)
