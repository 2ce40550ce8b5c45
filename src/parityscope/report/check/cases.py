"""What was checked as JUnit XML: a test suite a pair, a test case an output, and one for the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.as_junit import make_suite, render_suites, suite_of_study
from parityscope.report.check.view import view_pair
from parityscope.report.words import as_number, clean

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from collections.abc import Iterator, Mapping

    from parityscope.report.as_junit import JUnitCase

_NEVER = "1970-01-01T00:00:00"  # the form wants a time, and what could not be examined has none


def check_as_junit(document: Mapping[str, Any]) -> str:
    """`document` as XML text."""
    return render_suites(map(_suite_of_pair, document["pairs"]))


def _suite_of_pair(pair: Mapping[str, Any]) -> ET.Element:
    name = clean(pair["name"])
    if pair["study"] is not None:
        return suite_of_study(pair["study"], name=name, further=_case_of_baseline(pair))
    view = view_pair(pair)
    facts = {"candidate": clean(pair["candidate"])}
    seconds = as_number(pair["seconds"]) or 0.0
    return make_suite(
        name,
        [("examination", "error", view["told"])],
        told=view["screen"],
        seconds=seconds,
        created=_NEVER,
        facts=facts,
    )


def _case_of_baseline(pair: Mapping[str, Any]) -> Iterator[JUnitCase]:
    """The baseline as a test case, where there is one."""
    changes = pair["changes"]
    if changes is None:
        return
    if changes["verdict"] == "worse":
        kind = "failure"
    else:
        kind = "error" if changes["verdict"] == "incomplete" else ""
    yield "baseline", kind, view_pair(pair)["told"] if kind else ""
