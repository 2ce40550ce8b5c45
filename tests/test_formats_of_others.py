"""A study in the formats of other tools: JUnit, SARIF (held against its own schema), GitHub's commands, Markdown."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastjsonschema
import numpy as np
import pytest

import parityscope as ps
from command_line import exit_status
from parityscope.report import renderer_named
from parityscope.testing.networks import parse_network, write_network

if TYPE_CHECKING:
    from collections.abc import Callable

# Of OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0 Plus Errata 01", without its line breaks.
SARIF = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"
# The names would be markup, a command of the workflow, an entity, or the end of a fence, if anybody took them for that.
HOSTILE = "::error::<b>`|%0A"
HEAD = '<ir_version: 8, opset_import: ["": 17]> '
TEXT = HEAD + "g (float[1,8] x) => (float[1,4] y, float[1,8] z) { y = MatMul(x, w) z = Tanh(x) }"
W = np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32)
X = [np.linspace(-2, 2, 8, dtype=np.float32)[None] * scale for scale in (0.5, 1.0)]
# The elements that Ant's schema wants of a suite, in order, and the attributes that it requires.
PARTS = ("properties", "testcase", "system-out", "system-err")
REQUIRED = {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "id", "package"}


def examined(right: bool) -> dict[str, Any]:
    model = parse_network(TEXT, {"w": W})
    for node in model.graph.node:
        node.output[:] = [HOSTILE if name == "y" else name for name in node.output]
    model.graph.output[0].name = HOSTILE
    factor = np.float32(1 if right else 1.25)
    found = ps.diagnose(model, candidate=lambda a: [a["x"] @ W * factor, np.tanh(a["x"])], inputs=X)
    return dict(found.document)


@pytest.fixture(scope="module", params=[True, False], ids=["within", "beyond"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return examined(request.param)


@pytest.fixture(scope="module")
def is_sarif() -> Callable[[Any], Any]:
    made: Callable[[Any], Any] = fastjsonschema.compile(json.loads(SARIF.read_text(encoding="utf-8")))
    return made


def test_junit_counts_an_output_as_a_test(document: dict[str, Any]) -> None:
    text = renderer_named("junit").render(document)
    suite = ET.fromstring(text)[0]  # noqa: S314 - our own text
    assert suite.attrib.keys() >= REQUIRED
    assert list(dict.fromkeys(child.tag for child in suite)) == list(PARTS)
    cases = suite.findall("testcase")
    beyond = document["verdict"] == "beyond"
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", str(int(beyond)), "0")
    assert [len(case.findall("failure")) for case in cases] == [int(beyond), 0]
    assert cases[0].get("name") == f"output {HOSTILE}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp") or "")
    if beyond:
        assert "Why" in (cases[0].findall("failure")[0].text or "")


def test_sarif_is_sarif(document: dict[str, Any], is_sarif: Callable[[Any], Any]) -> None:
    held = json.loads(renderer_named("sarif").render(document))
    is_sarif(held)
    (run,) = held["runs"]
    levels = [one["level"] for one in run["results"]]
    assert ("error" in levels) == (document["verdict"] == "beyond")
    assert {one["ruleId"] for one in run["results"]} == {one["id"] for one in run["tool"]["driver"]["rules"]}


def test_what_is_beyond_without_a_cause_is_a_result_of_sarif_too(is_sarif: Callable[[Any], Any]) -> None:
    held = json.loads(renderer_named("sarif").render({**examined(right=False), "findings": []}))
    is_sarif(held)
    assert [one["ruleId"] for one in held["runs"][0]["results"]] == ["PARITY"]


def test_github_gets_one_command_a_cause_and_none_from_a_name(document: dict[str, Any]) -> None:
    lines = renderer_named("github").render(document).splitlines()
    commands = [line for line in lines if line.startswith("::")]
    causes = [one for one in document["findings"] if one["role"] == "cause"]
    assert len(commands) == (max(1, len(causes)) if document["verdict"] == "beyond" else 0)
    for command in commands:
        assert re.fullmatch(r"::(error|warning) title=[^:,]*::.*", command)
        assert re.search(r"%(?!25|0A|0D|3A|2C)", command) is None


def test_markdown_takes_no_name_for_markup(document: dict[str, Any]) -> None:
    text = renderer_named("markdown").render(document)
    assert text.startswith("### ")
    assert "| output |" in text
    outside = "".join(re.split(r"^(`{3,})text\n.*?^\1$", text, flags=re.MULTILINE | re.DOTALL)[::2])
    assert "<b>" not in outside
    assert "<b>" not in re.sub(r"\\.", "", outside)
    assert len([line for line in text.splitlines() if re.match(r"\| [✓✕?] \|", line)]) == 2


@pytest.mark.parametrize("form", ["junit", "sarif", "github", "markdown"])
def test_the_command_line_prints_it(form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = write_network(tmp_path / "m.onnx", TEXT, {"w": W})
    np.savez(tmp_path / "x.npz", x=X[0])
    words = [
        "compare",
        str(model),
        "--candidate",
        "ort",
        "--inputs",
        str(tmp_path / "x.npz"),
        "--quiet",
        "--format",
        form,
    ]
    assert exit_status(*words, "--study", str(tmp_path / "study")) == 0
    printed = capfd.readouterr().out
    saved = ps.load_study(tmp_path / "study")
    assert printed.strip() == renderer_named(form).render(saved.document).strip()
