"""The view model of what lint found: every number worded, findings by role with what to do about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.listed import view_listed
from parityscope.report.words import clean, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERDICTS = {
    "beyond": ("\N{MULTIPLICATION X}", "will break"),
    "within": ("\N{CHECK MARK}", "nothing in the file breaks it"),
    "open": ("?", "whether it breaks depends on the data"),
    "incomplete": ("?", "not all of it could be read"),
}
_TITLES = {"f16": "FP16", "bf16": "BF16", "f8e4m3": "FP8 E4M3", "f8e5m2": "FP8 E5M2", "tf32": "TF32", "f32": "FP32"}


def view_lint(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a page or a terminal shows of a lint document."""
    model = document["model"]
    # A tick would deny what stands below it.
    is_open = document["verdict"] == "within" and document["counts"]["contributing"]
    symbol, label = _VERDICTS["open" if is_open else document["verdict"]]
    listed = view_listed(document)
    causes = listed["causes"]
    formats = ", ".join(_TITLES.get(name, name) for name in document["formats"])
    return {
        **listed,
        "model": clean(model["name"]),
        "verdict": document["verdict"],
        "symbol": symbol,
        "label": f"{label}: {formats}",
        "headline": causes[0]["claim"] if causes else _headline_without_cause(document["counts"]),
        "about": f"{format_bytes(model['nbytes'])}, {format_count(model['nodes'])} nodes, "
        f"{format_count(model['constants'])} constants; "
        "it was read, not run: what only a run would show (an index outside, sizes that do not fit) is not seen here",
        "counts": {role: format_count(number) for role, number in document["counts"].items()},
    }


def _headline_without_cause(counts: Mapping[str, int]) -> str:
    if counts["contributing"]:
        return "No cause in the file; what depends on the data or the converter is listed below."
    return "No cause in the file."
