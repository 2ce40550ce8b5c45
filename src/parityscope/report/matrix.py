"""A matrix of models and targets -> text | json | html | markdown, what changed since the last run first. All of it is pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.languages import say_in_language
from parityscope.report._console import VERDICT_STYLES, print_paragraph
from parityscope.report._markup import escape_markup, fence_lines, markdown_table
from parityscope.report._page import TEMPLATES
from parityscope.report._plain import plain_items
from parityscope.report.check import check_document, describe_summary, print_pair, view_pair, view_status
from parityscope.report.forms import Forms, Page
from parityscope.report.listed import view_closing
from parityscope.report.words import as_number, clean, format_figure, format_percent
from parityscope.study.checking.matrix import facts_of_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from parityscope.study.checking.matrix import MatrixFile
    from parityscope.study.checking.running import PairOutcome

_FACTOR = (
    1.5  # of a latency; chosen: machines that do other things too change it by less from night to night, as a rule
)
_MOST = 500  # rows of a table; chosen
_NOTHING_NEW = "Nothing is otherwise than in the last run"


def matrix_document(
    file: MatrixFile,
    outcomes: Sequence[PairOutcome],
    last: Mapping[str, Mapping[str, Any]],
    *,
    command: str = "",
) -> dict[str, Any]:
    """Everything that was found, as plain data; `last` is what the last run kept, by the name of the cell.

    `verdict` and `counts` are as of a check; `differences` come first: of a cell, what it is (verdict, error, cause, latency) and
    was.
    """
    checked = check_document(file, outcomes, baseline=file.last, command=command)
    cells = []
    for cell, outcome, told in zip(file.cells, outcomes, checked["pairs"], strict=False):
        now = None if outcome.study is None else asdict(facts_of_cell(outcome.study))
        entry = last.get(cell.pair.name)
        then = None if entry is None else asdict(facts_of_cell(entry))
        cells.append({**told, "row": cell.row, "column": cell.column, "now": now, "last": then})
    return plain_items(
        {
            **{key: checked[key] for key in ("schema", "tool", "command", "verdict", "file", "counts")},
            "kind": "matrix",
            "last": str(file.last),
            "differences": [one for cell in cells for one in _differences_of_cell(cell)],
            "cells": cells,
        }
    )


def _differences_of_cell(cell: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    now, then = cell["now"], cell["last"]
    if then is None:
        return
    place = {"row": cell["row"], "column": cell["column"]}
    if now is None:
        yield {**place, "what": "verdict", "before": then["verdict"], "after": "error"}
        return
    for what in ("verdict", "cause"):
        if now[what] != then[what]:
            yield {**place, "what": what, "before": then[what], "after": now[what]}
    changes = cell["changes"]
    for one in changes["outputs"] if changes else ():
        if one["change"] in {"worse", "better"}:
            yield {**place, "what": f"error of {one['name']}", "before": one["errors"][0], "after": one["errors"][1]}
    slow, fast = (choose(now["latency_s"], then["latency_s"]) for choose in (max, min))
    if slow > _FACTOR * fast:
        yield {**place, "what": "latency_s", "before": then["latency_s"], "after": now["latency_s"]}


def _view_matrix(document: Mapping[str, Any]) -> dict[str, Any]:
    """All of the matrix, worded; `rows` are a title and the cell of each column, "" where there is none."""
    cells = {(one["row"], one["column"]): one for one in document["cells"]}
    rows = list(dict.fromkeys(one["row"] for one in document["cells"]))
    columns = list(dict.fromkeys(one["column"] for one in document["cells"]))
    pairs = [view_pair(one) for one in document["cells"]]
    known = any(one["last"] is not None for one in document["cells"])
    return {
        **view_status(document["verdict"]),
        "title": describe_summary(document),
        "since": "Since the last run" if known else "There is no last run yet",
        "differences": [_describe_difference(one) for one in document["differences"]],
        "same": known and not document["differences"],
        "columns": [clean(one) for one in columns],
        "rows": [
            (clean(row), [_describe_cell(cells[row, column]) if (row, column) in cells else "" for column in columns])
            for row in rows
        ],
        "failed": [one for one in pairs if one["failed"]],
        "file": clean(document["file"]),
        **view_closing(document),
    }


def _describe_cell(cell: Mapping[str, Any]) -> str:
    """Symbol, worst error, cause and latency."""
    symbol = view_pair(cell)["symbol"]
    now, study = cell["now"], cell["study"]
    if now is None:
        return f"{symbol} {cell['status']}"
    errors = [as_number(one.get("rel_l2")) or 0.0 for one in study["outputs"]]
    parts = (format_percent(max(errors, default=0.0)), clean(now["cause"]), _words_of_latency(now["latency_s"]))
    return f"{symbol} {' · '.join(part for part in parts if part)}"


def _describe_difference(one: Mapping[str, Any]) -> str:
    before, after = (_words_of(one["what"], one[key]) for key in ("before", "after"))
    what = "latency" if one["what"] == "latency_s" else clean(one["what"])
    return f"{clean(one['row'])}, {clean(one['column'])}: {what} {before} -> {after}"


def _words_of(what: str, value: Any) -> str:
    if what == "latency_s":
        return _words_of_latency(value)
    if what in {"verdict", "cause"}:
        return clean(value) or "none"
    return format_percent(value)


def _words_of_latency(seconds: float) -> str:
    return f"{format_figure(1e3 * seconds)} ms"


def _print_matrix(console: Console, model: Mapping[str, Any]) -> None:
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


def _matrix_as_markdown(document: Mapping[str, Any]) -> str:
    """`document` as text."""
    return "\n".join(_list_lines(_view_matrix(document))) + "\n"


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


FORMS = Forms(
    title="a matrix",
    view=_view_matrix,
    show=_print_matrix,
    page=Page(template=TEMPLATES / "matrix.html.j2"),
    others={"markdown": _matrix_as_markdown},
)
