"""What of a study's finding has to stay the same, and whether another study shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.study.reduction.records import FindingPattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.study.reduction.records import Shows

_INFORMS = "information"
# A change that is found by what the values show, and one that is found in the candidate's file, is one and the same at one place:
# a small part may prove by its file what rounding of a whole network left to the values, and the other way round.
_CHANGED_LAYER = frozenset({"FUS002", "EXP005"})


def pattern_of(document: Mapping[str, Any]) -> FindingPattern:
    """The first finding of a study that says why.

    Raises:
        ParityError: nothing is beyond there, or nothing was found.
    """
    found = _first_finding(document)
    if document["verdict"] != "beyond" or found is None:
        problem = (
            f"the study is {document['verdict']}" if document["verdict"] != "beyond" else "the study names no cause"
        )
        raise ParityError(
            f"{problem}: there is no finding to reduce", fix="parityscope diagnose, on samples that show one"
        )
    return found


def what_shows(document: Mapping[str, Any], pattern: FindingPattern) -> tuple[Shows, str]:
    """Whether a study shows the finding, and what it says in a few words."""
    if document["verdict"] != "beyond":
        return "no finding", f"the outputs are {document['verdict']}"
    found = _first_finding(document)
    if found is None:
        return "no finding", "beyond, and no cause is named"
    told = f"{found.code} at {found.node or 'no place'}"
    alike = found.code == pattern.code or {found.code, pattern.code} == _CHANGED_LAYER
    mine = (found.op_type, found.tensor, found.nonfinite)
    if alike and mine == (pattern.op_type, pattern.tensor, pattern.nonfinite):
        return "the same", told
    return "another finding", told


def _first_finding(document: Mapping[str, Any]) -> FindingPattern | None:
    """The first finding that is no mere fact; where it names no place, the first suspect's is its."""
    findings = [one for one in document["findings"] if one["role"] != _INFORMS]
    if not findings:
        return None
    first, suspects = findings[0], document["suspects"]
    site = first.get("site") or (suspects[0]["site"] if suspects else {})
    tensor = str(site.get("tensor", ""))
    return FindingPattern(
        code=str(first["code"]),
        title=str(first["title"]),
        claim=str(first["claim"]),
        tensor=tensor,
        node=str(site.get("node", "")),
        op_type=str(site.get("op_type", "")),
        nonfinite=_loses_numbers(document, tensor),
    )


def _loses_numbers(document: Mapping[str, Any], tensor: str) -> bool:
    """Whether the candidate has NaN or Inf at a tensor where the reference has numbers."""
    suspects = [one for one in document["suspects"] if one["site"]["tensor"] == tensor]
    rows = [one for one in (*document["outputs"], *document["tensors"]) if one["name"] == tensor]
    return any(one["introduced_nonfinite"] for one in suspects) or any(one["nonfinite"]["candidate"] for one in rows)
