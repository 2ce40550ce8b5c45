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
    from collections.abc import Iterator, Mapping

__all__ = ["RENDERER", "render_junit"]

_Case = tuple[str, str, str]  # name, "failure" or "error" or "", message


def render_junit(document: Mapping[str, Any]) -> str:
    """The report as XML text."""
    cases = list(_test_cases(document))
    name = clean((document.get("model") or {}).get("name") or "model")
    seconds = f"{sum(as_number(one) or 0.0 for one in (document.get('timings') or {}).values()):.3f}"
    counts = {"tests": str(len(cases))}
    counts |= {f"{kind}s": str(sum(case[1] == kind for case in cases)) for kind in ("failure", "error")}
    suites = ET.Element("testsuites")
    held = {
        "name": f"parityscope.{name}",
        "package": "parityscope",
        "id": "0",
        "hostname": "localhost",
        "time": seconds,
    }
    suite = ET.SubElement(suites, "testsuite", {**held, **counts, "timestamp": str(document.get("created", ""))[:19]})
    properties = ET.SubElement(suite, "properties")
    for key in ("reference", "candidate"):
        value = clean((document.get(key) or {}).get("target") or "")
        ET.SubElement(properties, "property", {"name": key, "value": value})
    told = plain_first_screen(document)
    for label, kind, message in cases:
        case = ET.SubElement(suite, "testcase", {"name": label, "classname": f"parityscope.{name}", "time": "0.000"})
        if kind:
            ET.SubElement(case, kind, {"type": kind, "message": message}).text = told
    ET.SubElement(suite, "system-out").text = told
    ET.SubElement(suite, "system-err")
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _test_cases(document: Mapping[str, Any]) -> Iterator[_Case]:
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
