"""All cells of a matrix as strict JSON, and how they differ from the last run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.report._plain import plain_items
from parityscope.report.check import check_document
from parityscope.study.checking.matrix import facts_of_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parityscope.study.checking.matrix import MatrixFile
    from parityscope.study.checking.running import PairOutcome

_FACTOR = (
    1.5  # of a latency; chosen: machines that do other things too change it by less from night to night, as a rule
)


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
