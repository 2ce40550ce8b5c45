"""What every form of a matrix says: what changed since the last run, and of each cell its verdict, error, cause and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.check.view import describe_summary, view_pair, view_status
from parityscope.report.listed import view_closing
from parityscope.report.words import as_number, clean, format_figure, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping


def view_matrix(document: Mapping[str, Any]) -> dict[str, Any]:
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
