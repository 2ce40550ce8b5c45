"""Examinations of a case that a test has in its hands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import parse_target
from parityscope.study import Examination, Request

if TYPE_CHECKING:
    from parityscope.case import Case


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
