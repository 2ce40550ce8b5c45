"""One study's document -> the line of it that lists and trends are made of.

A document may be anybody's: what has not the type that it should have is left out, and what cannot be read is a line
that says why.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.plain_documents import kind_of, read_json_file
from parityscope.plain_numbers import as_number
from parityscope.records import SCHEMA
from parityscope.report.kinds import KINDS
from parityscope.server.finding import open_document
from parityscope.times import format_time
from parityscope.visible import make_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.server.finding import FoundStudy

_LARGEST = 256 << 20  # bytes of a document, as `load_study` takes them
_LONGEST = 400  # signs of a text in a list; chosen
_VERDICTS = {"within", "beyond", "incomplete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """What a list shows of a study; `error` is the relative L2 error of its worst output, None where none was measured.

    `created` is in UTC as studies write it. `problem` says why a document cannot be read, and is empty where it can.
    """

    identity: str
    place: bytes
    mark: str
    kind: str = ""
    created: str = ""
    model: str = ""
    target: str = ""
    version: str = ""
    verdict: str = ""
    headline: str = ""
    output: str = ""
    error: float | None = None
    problem: str = ""


def summarize_study(root: bytes, found: FoundStudy) -> StudySummary:
    """Reads one study as far as a list needs it."""
    when = _time_of(found.changed)
    name = _text(os.fsdecode(found.place).rpartition("/")[2])
    base = StudySummary(identity=found.identity, place=found.place, mark=found.mark, created=when)
    try:
        held = _read_document(root, found.place)
    except (ParityError, OSError) as error:
        problem = error.problem if isinstance(error, ParityError) else error.strerror
        return replace(base, model=name, problem=_text(problem))
    schema, kind = _text(held.get("schema")), kind_of(held)
    if (schema != SCHEMA and not kind) or kind not in {"", *KINDS}:
        told = f"it is not a study of schema {SCHEMA} but of {_text(held.get('kind')) or schema or 'none'}"
        return replace(base, model=name, problem=told[:_LONGEST])
    side = _mapping(held.get("after" if kind else "candidate"))
    output, size = _worst_output(held.get("outputs"))
    verdict = _text(held.get("verdict")) or ("beyond" if held.get("lost") else "within" if kind else "")
    return replace(
        base,
        kind=kind,
        created=_text(held.get("created")) or when,
        model=_text(_mapping(held.get("model")).get("name")),
        target=_text(side.get("target")),
        version=_text(side.get("version")),
        verdict=verdict if verdict in _VERDICTS else "incomplete" if not kind else verdict,
        headline=_text(held.get("headline")),
        output=output,
        error=size,
    )


def _read_document(root: bytes, place: bytes) -> dict[str, Any]:
    file = open_document(root, place)
    try:
        held = read_json_file(Path(f"/proc/self/fd/{file}"), "the study", limit=_LARGEST)
    finally:
        os.close(file)
    if not isinstance(held, dict):
        raise ParityError("the study is no object")
    return held


def _worst_output(rows: object) -> tuple[str, float | None]:
    """The output whose error is largest, NaN counted as infinite."""
    worst: tuple[str, float | None] = ("", None)
    for row in rows if isinstance(rows, list) else ():
        held = _mapping(row)
        try:
            error = as_number(held.get("rel_l2"))
        except (TypeError, ValueError, OverflowError):
            continue
        if error is not None:
            error = math.inf if math.isnan(error) else error
            if worst[1] is None or error > worst[1]:
                worst = _text(held.get("name")), error
    return worst


def _time_of(seconds: float) -> str:
    """A time of the file system as studies write it; empty where that is no year of four digits."""
    try:
        return format_time(seconds)
    except (ValueError, OverflowError, OSError):
        return ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return make_visible(value[:_LONGEST]) if isinstance(value, str) else ""
