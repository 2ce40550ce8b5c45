"""Every pair that was checked as strict JSON: `schema` first, non-finite numbers as "NaN", "Infinity" and "-Infinity".

`study` of a pair is its study without the bulk that only plots need; what was measured before stands in `changes`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.report._plain import document_head, plain_items, to_plain_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.study.checking.matrix import MatrixFile
    from parityscope.study.checking.pairs import CheckFile
    from parityscope.study.checking.running import PairOutcome

_BULK = ("tensors", "plots", "graph_views", "wiring", "localization", "ladder", "calls", "refuted", "question")
_STATUSES = ("beyond", "worse", "error", "incomplete", "better", "within")


def check_document(
    file: CheckFile | MatrixFile,
    outcomes: Sequence[PairOutcome],
    *,
    baseline: Path,
    updated: bool = False,
    command: str = "",
) -> dict[str, Any]:
    """Everything that was found, as plain data; `updated` says that it becomes the baseline.

    `verdict` is "beyond" where a pair is beyond or worse than its baseline, "error" where one could not be examined,
    "incomplete" where one could not be judged, else "within".
    """
    counts = {name: sum(one.status == name for one in outcomes) for name in _STATUSES}
    failed = counts["beyond"] + counts["worse"]
    verdict = "beyond" if failed else next((name for name in ("error", "incomplete") if counts[name]), "within")
    return plain_items(
        {
            **document_head(command, kind="check"),
            "verdict": verdict,
            "file": str(file.path),
            "baseline": str(baseline),
            "updated": updated,
            "counts": counts,
            "pairs": [pair_as_data(one) for one in outcomes],
        }
    )


def pair_as_data(outcome: PairOutcome) -> dict[str, Any]:
    """What became of one pair."""
    request, error = outcome.pair.request, outcome.error
    return {
        "name": outcome.pair.name,
        "model": str(request.model),
        "candidate": request.candidate,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "report": str(outcome.folder / "report.html") if outcome.folder else "",
        "error": None if error is None else {"problem": error.problem, "where": error.where, "fix": error.fix},
        "changes": None if outcome.changes is None else to_plain_data(asdict(outcome.changes)),
        "study": None if outcome.study is None else _without_bulk(outcome.study),
    }


def _without_bulk(study: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in study.items() if key not in _BULK}
