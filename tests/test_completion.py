"""Shell completion in a real bash: verbs, options of the verb, words that options take, and files; installed by one command."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from command_line import exit_status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
COMPLETE = (
    'source "$1"; shift; cd "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _parityscope; '
    'printf "%s\\n" "${COMPREPLY[@]}"'
)


def test_tab_completes_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert exit_status("completion", "bash", "--install") == 0
    script = tmp_path / "data" / "bash-completion" / "completions" / "parityscope"
    assert str(script) in capsys.readouterr().err
    assert exit_status("completion") == 0
    assert capsys.readouterr().out == script.read_text(encoding="utf-8")
    (tmp_path / "model.onnx").touch()

    def completed(*words: str) -> list[str]:
        typed = ["bash", "--norc", "-c", COMPLETE, "bash", str(script), str(tmp_path), "parityscope", *words]
        return subprocess.run(typed, capture_output=True, text=True, check=True, timeout=300).stdout.split("\n")[:-1]

    assert completed("dia") == ["diagnose"]
    assert completed("mod") == ["model.onnx"]
    assert completed("diagnose", "mod") == ["model.onnx"]
    assert completed("diagnose", "m.onnx", "--cand") == ["--candidate", "--candidate-inputs"]
    assert completed("diagnose", "m.onnx", "--candidate", "op") == ["openvino"]
    assert completed("diagnose", "m.onnx", "--candidate", "bf") == ["bf16"]
    assert completed("report", "s", "--format", "ju") == ["junit"]
    assert completed("lint", "m.onnx", "--lang", "z") == ["zh"]
    assert completed("lint", "m.onnx", "--cand") == [""]
    assert completed("model.onnx", "--sam") == ["--samples"]  # a model alone
    (tmp_path / "my model.onnx").touch()
    assert completed("lint", "my") == ["my model.onnx"]
    assert exit_status("completion", "bsh") == 2
    assert "did you mean bash?" in capsys.readouterr().err
