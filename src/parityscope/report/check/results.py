"""What was checked as SARIF 2.1.0: the results of each pair's study, and one for what is worse or could not be examined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.as_sarif import make_result, results_of_study, sarif_log, titles_of_rules
from parityscope.report.check.view import view_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TITLES = {"BASELINE": "Worse than the baseline", "UNEXAMINED": "Could not be examined"}
_CODES = {"worse": "BASELINE", "error": "UNEXAMINED"}


def check_as_sarif(document: Mapping[str, Any]) -> str:
    """`document` as JSON text."""
    titles = dict(_TITLES)
    for pair in document["pairs"]:
        titles |= titles_of_rules(pair["study"] or {})
    results = [one for pair in document["pairs"] for one in _results_of_pair(pair)]
    return sarif_log(results, titles, str(document["tool"]["version"]))


def _results_of_pair(pair: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    view = view_pair(pair)
    if pair["study"] is not None:
        yield from results_of_study(pair["study"])
    if pair["status"] in _CODES:
        yield make_result(_CODES[pair["status"]], f"{view['name']}: {view['told']}", str(pair["model"]))
