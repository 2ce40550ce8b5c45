"""The study as JUnit XML: a test case an output, for whatever counts tests.

An output beyond its arithmetic or its budget is a failure, one that could not be judged an error; what was asked for and not
examined is an error of a case of its own. The text of a failure is the first screen. The form is that of Ant's JUnit tasks,
which Jenkins, GitLab and Azure read.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from parityscope.report import Renderer
from parityscope.report.as_text import plain_first_screen
from parityscope.report.words import as_number, clean, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

JUnitCase = tuple[str, str, str]  # name, "failure" or "error" or "", message


def render_junit(document: Mapping[str, Any]) -> str:
    """The report as XML text."""
    return render_suites([suite_of_study(document)])


def render_suites(suites: Iterable[ET.Element]) -> str:
    """Test suites as XML text."""
    whole = ET.Element("testsuites")
    for place, suite in enumerate(suites):
        suite.set("id", str(place))
        whole.append(suite)
    ET.indent(whole)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(whole, encoding="unicode")}\n'


def suite_of_study(document: Mapping[str, Any], *, name: str = "", further: Iterable[JUnitCase] = ()) -> ET.Element:
    """The test suite of a study, called after its model unless it has a `name`; `further` are cases besides the outputs'."""
    cases = [*_test_cases(document), *further]
    told = plain_first_screen(document)
    seconds = sum(as_number(one) or 0.0 for one in (document.get("timings") or {}).values())
    targets = {key: clean((document.get(key) or {}).get("target") or "") for key in ("reference", "candidate")}
    name = name or clean((document.get("model") or {}).get("name") or "model")
    return make_suite(name, cases, told=told, seconds=seconds, created=str(document.get("created", "")), facts=targets)


def make_suite(
    name: str, cases: Sequence[JUnitCase], *, told: str, seconds: float, created: str, facts: Mapping[str, str]
) -> ET.Element:
    """A test suite of these cases; `told` is the text of each failure, `created` a time as documents have it."""
    held = {
        "name": f"parityscope.{name}",
        "package": "parityscope",
        "hostname": "localhost",
        "time": f"{seconds:.3f}",
        "tests": str(len(cases)),
        **{f"{kind}s": str(sum(case[1] == kind for case in cases)) for kind in ("failure", "error")},
        "timestamp": created[:19],
    }
    suite = ET.Element("testsuite", held)
    properties = ET.SubElement(suite, "properties")
    for key, value in facts.items():
        ET.SubElement(properties, "property", {"name": key, "value": value})
    for label, kind, message in cases:
        case = ET.SubElement(suite, "testcase", {"name": label, "classname": f"parityscope.{name}", "time": "0.000"})
        if kind:
            ET.SubElement(case, kind, {"type": kind, "message": message}).text = told
    ET.SubElement(suite, "system-out").text = told
    ET.SubElement(suite, "system-err")
    return suite


def _test_cases(document: Mapping[str, Any]) -> Iterator[JUnitCase]:
    kinds = {"within": "", "beyond": "failure"}
    for one in document.get("outputs", ()):
        kind = kinds.get(str(one.get("verdict")), "error")
        error = as_number(one.get("rel_l2"))
        message = clean(one.get("reason") or "") or (
            "" if error is None else f"differs by {format_percent(error, exact=True)}"
        )
        yield f"output {clean(one.get('name', ''))}", kind, message
    for skip in document.get("skipped", ()):
        if skip.get("asked"):
            yield clean(skip.get("what", "")), "error", clean(skip.get("reason", ""))


RENDERER = Renderer(name="junit", suffix=".junit.xml", render=render_junit)
