"""View of what was not examined: what was asked for first, and what has one reason in one row.

An engine that fuses can leave hundreds of tensors without a value. Each is a skip in `study.json`; a reader wants to
know how many there are, why, and what would change it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOGETHER = 3  # with more of one kind and reason, they are one row. Chosen.
_SHOWN = 3  # names of such a row that are written out in it; the page unfolds the others. Chosen.
# What only says that there is no value; where another skip says why there is none, it adds nothing.
_SYMPTOM = re.compile(r"the (reference|candidate) did not give it back")
# A word with a digit or a mark inside is the name of one layer or file: two reasons that differ in it are one.
_NAME = re.compile(r"\S*[\d_/:.]\S*(?=\s|$)")


def view_skips(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of what, reason, fix, whether it was asked for, and the names that a row stands for if they are several."""
    rows = _list_skips(document)
    explained = {row["what"] for row in rows if not _SYMPTOM.fullmatch(row["reason"])}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for place, row in enumerate(rows):
        if _SYMPTOM.fullmatch(row["reason"]) and row["what"] in explained:
            continue
        kind, _, name = row["what"].partition(" ")
        key = (
            (kind, row["fix"], row["asked"], _NAME.sub("\N{HORIZONTAL ELLIPSIS}", row["reason"])) if name else (place,)
        )
        groups.setdefault(key, []).append(row)
    shown = [one for group in groups.values() for one in (group if len(group) <= _TOGETHER else [_join_skips(group)])]
    return sorted(shown, key=lambda row: not row["asked"])


def _list_skips(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every skip of the document once."""
    told: list[dict[str, Any]] = []
    for skip in (*document.get("skipped", ()), *((document.get("localization") or {}).get("skipped", ()))):
        row = {key: clean(skip.get(key, "")) for key in ("what", "reason", "fix")}
        full = {**row, "asked": bool(skip.get("asked")), "names": []}
        if full not in told:
            told.append(full)
    return told


def _join_skips(group: list[dict[str, Any]]) -> dict[str, Any]:
    kind = group[0]["what"].partition(" ")[0]
    names = [row["what"].partition(" ")[2] for row in group]
    reasons = {row["reason"] for row in group}
    reason = reasons.pop() if len(reasons) == 1 else _NAME.sub("\N{HORIZONTAL ELLIPSIS}", group[0]["reason"])
    what = f"{len(names):,} {kind}s: {', '.join(names[:_SHOWN])}, \N{HORIZONTAL ELLIPSIS}"
    return {**group[0], "what": what, "reason": reason, "names": names}
