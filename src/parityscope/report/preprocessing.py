"""Two preprocessings held beside each other -> text, step by step: the page of `parityscope preprocessing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.forms import plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.checks.preparing import Parting

_SCHEMA = "parityscope-preprocessing/1"


def preprocessing_document(found: Parting) -> dict[str, Any]:
    """What was found as strict JSON data."""
    first = found.first
    return {
        "schema": _SCHEMA,
        "verdict": "within" if first is None else "beyond",
        "images": found.images,
        "paired_by": found.paired,
        "parts_at": None if first is None else first.name,
        "words": "" if first is None else f"the candidate {first.words}",
        "stages": [
            {
                "name": stage.name,
                "candidate_name": stage.candidate_name,
                "reference": stage.reference,
                "candidate": stage.candidate,
                "images": stage.images,
                "same": stage.same,
                "words": stage.words,
                "left": stage.left,
            }
            for stage in found.stages
        ],
        "skipped": [{"what": f"step {name}", "reason": "the other side has no such step"} for name in found.alone],
    }


def _list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    left = 0.0
    for stage in document["stages"]:
        same = stage["same"] == stage["images"]
        names = dict.fromkeys((stage["name"], stage["candidate_name"]))
        yield f"{'=' if same else 'x'} {' / '.join(names)}: the same on {stage['same']} of {stage['images']} images"
        yield f"    reference: {stage['reference']}"
        if not same:
            yield f"    candidate: {stage['candidate']}"
        left = stage["left"] if stage["name"] == document["parts_at"] else left
    alone = ", ".join(one["what"].removeprefix("step ") for one in document["skipped"])
    if alone:
        yield f"Steps that could not be paired: {alone}. Only the ends were compared."
    yield ""
    if document["parts_at"] is None:
        yield "Both preprocessings give the same."
        return
    # A hundred-thousandth of the variance is what rounding in another order leaves.
    rest = f" ({100 * left:.2g} % of the variance is not explained by that)" if left > 1e-5 else ""
    yield f"They part at {document['parts_at']}: {document['words']}{rest}."


FORMS = plain_forms("preprocessing", _list_lines)
