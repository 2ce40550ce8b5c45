"""`-o FILE` and `--study FOLDER` of every verb: those that lack one are listed with the reason, and nothing else may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from command_line import exit_status, read_study
from parityscope.cli.shell.answering import WITHOUT
from parityscope.cli.shell.app import command

MODEL = '<ir_version: 8, opset_import: ["" : 17]> network (float[1, 4] x) => (float[1, 4] y) { y = Tanh(x) }'
ENDINGS = (".txt", ".json", ".html", ".md")


def options() -> dict[str, set[str]]:
    every: Any = command().commands  # type: ignore[attr-defined]
    return {verb: {word for one in made.params for word in one.opts} for verb, made in every.items()}


@pytest.mark.parametrize("option", ["--output", "--study"])
def test_every_verb_has_it_or_says_why_not(option: str) -> None:
    lacking = {verb for verb, words in options().items() if option not in words}
    assert lacking == set(WITHOUT[option])
    assert all(len(reason.split()) > 3 for reason in WITHOUT[option].values())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")  # what a file has, so that both hold the same lines
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    Path("build.log").write_text("[I] TensorRT version: 10.3.0\n[W] something\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("look", "m.onnx", "--inputs", "x.npz"),
        ("predict", "m.onnx", "--inputs", "x.npz", "--formats", "f16"),
        ("lint", "m.onnx"),
        ("log", "build.log"),
        ("doctor",),
        ("list",),
        ("list", "repairs"),
        ("explain", "RNG001"),
        ("explain",),
    ],
)
def test_the_ending_says_the_form(desk: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    files = [f"told{ending}" for ending in ENDINGS]
    kept = [] if words[0] in WITHOUT["--study"] else ["--study", "kept"]
    assert exit_status(*words, *(f"-o{name}" for name in files), *kept) in {0, 1, 3}
    printed = capsys.readouterr().out
    assert (desk / "told.txt").read_text(encoding="utf-8") == printed
    document = json.loads((desk / "told.json").read_text(encoding="utf-8"))
    page = (desk / "told.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert printed.split()[0] in (desk / "told.md").read_text(encoding="utf-8")
    if kept:  # the folder holds the same, and `report` writes it again
        assert read_study(desk / "kept") == document
        assert (desk / "kept" / "report.html").read_text(encoding="utf-8") == page
        assert exit_status("report", "kept") == 0
        assert capsys.readouterr().out == printed
        assert exit_status(*words, *kept) == 2
        assert "kept exists already" in capsys.readouterr().err
    assert exit_status(*words, "-o", "told.docx") == 2
    assert "told.docx has no suffix that says how to write it" in capsys.readouterr().err


def test_no_empty_folder_of_tensors_is_kept(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", "m.onnx", "--candidate", "ort", "--inputs", "x.npz", "--study", "s")
    assert exit_status(*words, "--keep-tensors") == 0
    assert "no tensors are kept" in capsys.readouterr().err
    assert not (desk / "s" / "tensors").exists()
