"""What changed between two studies as strict JSON: `schema` first, non-finite numbers as "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.study.changes.comparing import StudyChanges

KIND = "diff"


def changes_document(
    found: StudyChanges,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    places: tuple[str, str],
    command: str = "",
) -> dict[str, Any]:
    """Everything that changed, as plain data; `places` are where both studies lie."""
    return plain_items(
        {
            **document_head(command, kind=KIND),
            "verdict": found.verdict,
            "before": _side_of(before, places[0]),
            "after": _side_of(after, places[1]),
            "outputs": found.outputs,
            "facts": found.facts,
            "causes": found.causes,
            "layers": found.layers,
            "layers_compared": found.layers_compared,
            "precisions": [dict(zip(("node", "before", "after"), one, strict=True)) for one in found.precisions],
            "seconds": found.seconds,
            "nbytes": found.nbytes,
            "skipped": found.skipped,
        }
    )


def _side_of(document: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "study": place,
        "created": document.get("created", ""),
        "model": (document.get("model") or {}).get("name", ""),
        "candidate": (document.get("candidate") or {}).get("target", ""),
        "verdict": document.get("verdict", ""),
    }
