"""A study in a folder -> what it asked, asked again, and its finding reduced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.recording import Progress, ignore_progress
from parityscope.study._experiment_again import check_digests
from parityscope.study._folder import as_written
from parityscope.study._opening import open_request
from parityscope.study._question import ask_again
from parityscope.study.reduction.pattern import pattern_of
from parityscope.study.reduction.searching import reduce_examination

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.study.reduction.records import Reduced

__all__ = ["reduce_study"]

_AGAIN = "parityscope reduce STUDY"


def reduce_study(
    document: Mapping[str, Any],
    folder: Path,
    *,
    replaced: Mapping[str, str] | None = None,
    again: str = _AGAIN,
    runs: int = 0,
    repeats: int = 0,
    progress: Progress = ignore_progress,
) -> Reduced:
    """The smallest model that shows the first finding of a study.

    `folder` is scratch and holds the piece's files; `replaced` are options of the question in place of the study's, `again` the
    command that they would be added to. `runs` and `repeats` are those of `reduce_examination`.

    Raises:
        GoneError: the finding does not show any more.
        ParityError: the study has no finding, does not say what was asked, names code that `replaced` does not name, or what it
            names is gone or another.
    """
    with as_written():
        pattern_of(document)
        kept = ask_again(document, replaced or {}, again)
        digests = {what: str(document[what]["sha256"]) for what in ("model", "inputs")}
    with open_request(kept.request) as asked:
        notes = check_digests(digests, kept, asked, replaced or {})
        known = replace(asked, folder=folder / "examination", progress=progress)
        found = reduce_examination(known, document, folder, runs=runs, repeats=repeats)
    return replace(found, notes=(*kept.notes, *notes))
