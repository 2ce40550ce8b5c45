"""A pipeline's document -> text: every stage with what it introduces and inherits, and the first that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.forms import plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEADS = ("stage", "output", "introduced", "inherited", "total", "grade", "verdict")


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    first = document["first"]
    if first:
        yield f"The first stage that differs is {first}."
        if document["cause"]:
            yield f"  {document['cause']}"
    elif document["verdict"] == "within":
        yield "Every stage gives what its arithmetic allows on what it was given."
    else:
        yield "No stage that was judged differs; not every stage was judged."
    yield f"{document['pipeline']}, {document['samples']} samples; errors are relative L2"
    yield ""
    rows = [_HEADS, *(row for stage in document["stages"] for row in _list_rows(stage))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for skip in document["skipped"]:
        yield f"not examined: {skip['what']}: {skip['reason']}" + (f" ({skip['fix']})" if skip["fix"] else "")


def _list_rows(stage: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if stage["glue"] is not None:
        yield (f"{stage['name']} (glue)", "inputs", _format_number(stage["glue"]), "-", "-", "-", stage["glue_verdict"])
    for output in stage["outputs"]:
        numbers = (_format_number(output[key]) for key in ("introduced", "inherited", "total"))
        yield (stage["name"], output["name"], *numbers, output["grade"] or "-", output["verdict"])
    if not stage["outputs"]:
        yield (stage["name"], "-", "-", "-", "-", "-", stage["verdict"])


def _format_number(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.3g}"


FORMS = plain_forms("pipeline", _list_lines)
