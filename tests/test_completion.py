"""Shell completion in real shells: verbs, options of the verb, words that options take, and files; installed by one command."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command_line import exit_status

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETE = (
    'source "$1"; shift; cd "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _parityscope; '
    'printf "%s\\n" "${COMPREPLY[@]}"'
)
LOADER = Path("/usr/share/bash-completion/bash_completion")
LOADED = "type _completion_loader >/dev/null 2>&1 && _completion_loader parityscope; complete -p parityscope"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with `parityscope` on the path and two files in `files`."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "files").mkdir()
    (home / "files" / "model.onnx").touch()
    (home / "files" / "my model.onnx").touch()
    (home / "bin" / "parityscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parityscope "$@"\n', "utf-8")
    (home / "bin" / "parityscope").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", os.pathsep.join([str(home / "bin"), os.environ["PATH"]]))
    return home


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
def test_tab_completes_what_there_is(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    # A new shell that looks for completions by itself, or by the line that was added for it.
    settings = LOADER if LOADER.is_file() else home / ".bashrc"
    typed = ["bash", "--rcfile", str(settings), "-i", "-c", LOADED]
    assert "-F _parityscope" in subprocess.run(typed, capture_output=True, text=True, check=True, timeout=300).stdout
    assert exit_status("completion", "bsh") == 2
    assert "did you mean bash?" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish here")
def test_fish_completes_the_same(home: Path) -> None:
    assert exit_status("completion", "fish", "--install") == 0

    def completed(line: str) -> list[str]:
        typed = ["fish", "-c", 'complete -C "$argv[1]"', line]
        done = subprocess.run(typed, capture_output=True, text=True, check=True, timeout=300, cwd=home / "files")
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert completed("parityscope dia") == ["diagnose"]
    assert completed("parityscope mod") == ["model.onnx"]
    assert completed("parityscope diagnose m.onnx --cand") == ["--candidate", "--candidate-inputs"]
    assert completed("parityscope diagnose m.onnx --candidate op") == ["openvino"]
    assert completed("parityscope report s --format ju") == ["junit"]
    assert completed("parityscope lint m.onnx --lang z") == ["zh"]
    assert completed("parityscope lint m.onnx --cand") == []
    assert completed("parityscope model.onnx --sam") == ["--samples"]


@pytest.fixture
def zsh(home: Path) -> Iterator[int]:
    """The terminal of a zsh that has read what the installation wrote."""
    assert exit_status("completion", "zsh", "--install") == 0
    assert exit_status("completion", "zsh", "--install") == 0
    lines = (home / ".zshrc").read_text("utf-8")
    assert lines.count("compinit") == 2  # one line, once
    (home / ".zshrc").write_text(
        lines.replace("&& compinit", "&& compinit -u") + "PS1='ready> '; cd ~/files\n", "utf-8"
    )
    terminal, other = pty.openpty()
    typing = {"stdin": other, "stdout": other, "stderr": other}
    with subprocess.Popen(["zsh", "-i"], env={**os.environ, "TERM": "dumb"}, start_new_session=True, **typing) as shell:
        os.close(other)
        read_until(terminal, "ready> ")
        yield terminal
        shell.kill()
    os.close(terminal)


def read_until(terminal: int, wanted: str) -> str:
    """What a shell shows until something stands there."""
    shown = ""
    while wanted not in shown:
        assert select.select([terminal], [], [], 300)[0], shown
        shown += os.read(terminal, 65536).decode("utf-8", "replace").replace("\a", "")
    return shown


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh here")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("parityscope dia", "parityscope diagnose"),
        ("parityscope diagnose mod", "parityscope diagnose model.onnx"),
        ("parityscope diagnose m.onnx --can", "m.onnx --candidate"),
        ("parityscope diagnose m.onnx --candidate op", "--candidate openvino"),
        ("parityscope report s --format ju", "--format junit"),
        ("parityscope lint m.onnx --lang z", "--lang zh"),
        ("parityscope model.onnx --sam", "--samples"),
    ],
)
def test_zsh_completes_the_same(typed: str, shown: str, zsh: int) -> None:
    os.write(zsh, f"{typed}\t".encode())
    read_until(zsh, shown)
