"""`-o FILE` of diagnose, compare and localize: what is written follows the file's ending, beside what stdout gets."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest

from command_line import exit_status
from parityscope.errors import ParityError
from parityscope.report import renderer_for

MODEL = '<ir_version: 8, opset_import: ["" : 17]> network (float[1, 4] x) => (float[1, 4] y) { y = Tanh(x) }'


@pytest.mark.parametrize(
    ("name", "renderer"),
    [
        ("a.html", "html"),
        ("a.json", "json"),
        ("a.md", "markdown"),
        ("a.xml", "junit"),
        ("a.junit.xml", "junit"),
        ("a.sarif", "sarif"),
        ("a.txt", "text"),
        ("a.node-data.json", "node-data"),
    ],
)
def test_the_ending_says_how_it_is_written(name: str, renderer: str) -> None:
    assert renderer_for(name).name == renderer


def test_another_ending_is_refused() -> None:
    with pytest.raises(ParityError, match=r"a\.docx has no ending that says how to write it"):
        renderer_for("a.docx")


def test_a_verb_writes_a_file_beside_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    words = ("compare", "m.onnx", "--inputs", "x.npz", "--candidate", "ort", "--quiet")
    assert exit_status(*words, "-o", "found.xml") == 0
    assert capsys.readouterr().out.startswith("✓ m in FP32")
    assert ET.parse("found.xml").getroot().tag == "testsuites"  # noqa: S314 - our own file
    assert exit_status(*words, "-o", "found.json") == 0
    assert json.loads(Path("found.json").read_text(encoding="utf-8"))["verdict"] == "within"
    assert exit_status(*words, "-o", "found.json") == 2
    assert "found.json exists already" in capsys.readouterr().err
    assert exit_status(*words, "-o", "found.docx") == 2
    assert "found.docx has no ending that says how to write it" in capsys.readouterr().err
