"""Examinations of a case that a test has in its hands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import parse_target
from parityscope.examination import OutputRun
from parityscope.study import Examination, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case
    from parityscope.records import ExecutedGraph


def examination_of(
    case: Case, candidate: str, *, reference: str = "ort", folder: Path | None = None, **asked: Any
) -> Examination:
    """The examination of a case of which nothing is known yet; `asked` are further fields of the request."""
    return Examination(
        request=Request(model=case.model.path, candidate=candidate, reference=reference, **asked),
        case=case,
        reference=parse_target(reference),
        candidate=parse_target(candidate),
        folder=folder or Path(),
    )


def empty_run(
    *, executed: ExecutedGraph | None = None, environments: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
) -> OutputRun:
    """What comparing outputs gave, of which only this is told."""
    return OutputRun(
        statistics={},
        per_sample={},
        spread=0.0,
        changing=0.0,
        skipped=(),
        reference_seconds=0.0,
        candidate_seconds=0.0,
        reference_environment=environments[0],
        candidate_environment=environments[1],
        executed=executed,
    )
