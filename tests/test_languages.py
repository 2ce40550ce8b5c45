"""Chinese by one switch: catalogues that are whole and well formed, what they do to a text, the terminal and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from command_line import exit_status
from golden import documents
from parityscope import languages
from parityscope.languages import (
    LANGUAGES,
    OWN,
    columns_of,
    current_language,
    say_in_language,
    speak_language,
    translate_text,
)
from parityscope.languages.catalogue import catalogue_of, entries_of
from parityscope.report import as_text

OTHERS = sorted(set(LANGUAGES) - {OWN})
CHINESE = re.compile("[\u4e00-\u9fff]")
NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
network (float[4, 10] x) => (float[4, 10] y) <float big = {100000}> { h = Mul(x, big)  y = Tanh(h) }"""


@pytest.mark.parametrize("code", OTHERS)
def test_what_is_told_fills_in_everything_that_there_is(code: str) -> None:
    for own, told in entries_of(code).items():
        assert own == own.strip(), own
        assert told.strip(), own
        places = {int(place) for place in re.findall(r"\{(\d+)\}", told)}
        if "{}" in own:
            assert all(place < own.count("{}") for place in places), own
            told.format(*["x"] * own.count("{}"))
        else:  # {0} is what the page's script fills in
            assert places == {int(place) for place in re.findall(r"\{(\d+)\}", own)}, own


@pytest.mark.parametrize("code", OTHERS)
def test_no_text_is_told_twice(code: str) -> None:
    folder = Path(languages.__file__).parent / code
    names = [
        name
        for path in folder.glob("*.po")
        for name in re.findall(r'^msgid (".*")$', path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names))
    assert set(map(json.loads, names)) == set(entries_of(code))
    assert catalogue_of(code).patterns


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node #2 of #0 to #671", "节点 #2（#0 至 #671）"),
        (
            "'y' differs by 74.0 %, 163 times FP16's expected rounding error",
            "'y' 相差 74.0 %，是 FP16 预期舍入误差的 163 倍",
        ),
        ("'output' differs by 3.00 %", "'output' 相差 3.00 %"),  # a name in quotes is no word of ours
        ("output", "输出"),
        ("✓ within", "✓ 达标"),
        ("/model/layers.3/add: 1.00", "/model/layers.3/add: 1.00"),
        ("  12 samples ", "  12 个样本 "),
        ("0.740", "0.740"),
    ],
)
def test_a_text_is_told_by_its_pattern_and_names_stay(text: str, told: str) -> None:
    assert translate_text(text, "zh") == told
    assert translate_text(text, OWN) == text


def test_a_language_is_spoken_inside_only() -> None:
    assert say_in_language("Where") == "Where"
    with speak_language("zh"):
        assert (current_language(), say_in_language("Where")) == ("zh", "位置")
        with speak_language(OWN):
            assert say_in_language("Where") == "Where"
    assert current_language() == OWN
    with pytest.raises(ValueError, match="none of en, zh"), speak_language("xx"):
        pass
    assert columns_of("节点 3") == 6


@pytest.mark.parametrize("width", [44, 100])
def test_a_terminal_in_chinese_keeps_to_its_width(width: int) -> None:
    document = documents.within()
    with speak_language("zh"):
        text = as_text.render_text(document, width=width) + as_text.render_first_screen(document, width=width)
    commands = {document["command"]}
    assert [line for line in text.splitlines() if columns_of(line) > width and line.strip() not in commands] == []
    assert CHINESE.search(text)


def test_one_switch_for_a_command_and_documents_of_no_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(NETWORK), "m.onnx")
    np.savez("x.npz", x=np.random.default_rng(1).standard_normal((4, 10)).astype(np.float32))
    words = ["compare", "m.onnx", "--inputs", "x.npz", "--candidate", "sim:f16"]
    assert exit_status(*words, "--study", "en") in {0, 1, 3}
    english = capsys.readouterr().out
    assert exit_status("--lang", "zh", *words, "--study", "zh") in {0, 1, 3}
    chinese = capsys.readouterr().out
    assert CHINESE.search(chinese)
    assert not CHINESE.search(english)
    monkeypatch.setenv("PARITYSCOPE_LANG", "zh_CN.UTF-8")
    assert exit_status("report", "en") == 0
    assert capsys.readouterr().out == chinese.replace("zh/report.html", "en/report.html")
    assert exit_status("report", "zh", "--lang=en") == 0
    assert capsys.readouterr().out == english.replace("en/report.html", "zh/report.html")
    assert not CHINESE.search((tmp_path / "zh" / "study.json").read_text("utf-8"))
    assert '<html lang="zh">' in (tmp_path / "zh" / "report.html").read_text("utf-8")
    assert '<html lang="en">' in (tmp_path / "en" / "report.html").read_text("utf-8")
    assert exit_status("report", "nothing", "--lang", "xx") == 2
    assert "there is no language 'xx'" in capsys.readouterr().err
    assert exit_status("report", "nothing", "--lang", "zh") == 2
    assert "解决：" in capsys.readouterr().err
