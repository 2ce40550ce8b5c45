"""The lines that repair what is outside of the model, for a finding of a document: written by the advice of that name.

A document may come from another machine, so nothing of it is trusted: a name is looked for among the repairs' own files and
the entry points of their group, and details that an advice cannot read give no lines.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parityscope.plugins import plugin_modules
from parityscope.records import Finding
from parityscope.repairs import Advice
from parityscope.report.words import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUP = "parityscope.repairs"


def lines_of(name: str, finding: Mapping[str, Any]) -> dict[str, str]:
    """`title`, `risk` and `lines` of the advice called `name`; empty where there is none or it has nothing to write."""
    found = _find_advice(name)
    if found is None:
        return {}
    try:
        written = found.write(_finding_record(finding))
    except (TypeError, ValueError, LookupError):
        return {}
    if not written:
        return {}
    lines = "\n".join(clean(line) for line in written.rstrip().splitlines())
    return {"title": found.title, "risk": found.risk, "lines": lines}


def _find_advice(name: str) -> Advice | None:
    """The advice of that name; its file is all that is imported."""
    path = plugin_modules(_GROUP).get(name)
    try:
        found = getattr(importlib.import_module(path), "ADVICE", None) if path else None
    except ImportError:
        return None
    return found if isinstance(found, Advice) else None


def _finding_record(finding: Mapping[str, Any]) -> Finding:
    """What advice reads of a finding: its code and its details."""
    return Finding(
        code=str(finding.get("code", "")),
        title=str(finding.get("title", "")),
        role="cause",
        claim=str(finding.get("claim", "")),
        confidence=1.0,
        confidence_from="",
        details=dict(finding.get("details") or {}),
    )
