"""A stdout that takes nothing is no verdict, a stderr that takes nothing changes none, and no terminal obeys a name."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from command_line import exit_status
from parityscope.visible import make_visible

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "\x1b[31mred\r\x1b[K\x9b2J\u202eé"


class Screen(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = False) -> None:
        self.held = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.held, encoding=encoding, errors="strict")

    def isatty(self) -> bool:
        return self.terminal

    def told(self) -> str:
        self.flush()
        return self.held.getvalue().decode(self.encoding)


def make_world(folder: Path, output: str = "y") -> list[str]:
    """A model whose output has a name, a sample, answers far off; what compares them."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", output)]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], [output])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    np.savez(folder / "x.npz", x=np.ones((1, 4), np.float32))
    np.savez(folder / "far.npz", **{output: np.zeros((1, 4), np.float32)})
    return ["compare", str(folder / "m.onnx"), "--inputs", str(folder / "x.npz"), "--candidate", "ort", "--quiet"]


def in_a_shell(streams: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`parityscope` with its streams as a shell redirects them."""
    command = ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, "-m", "parityscope", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("streams", [">&-", ">/dev/full", "<&- >&- 2>&-", "1</dev/null"])
def test_a_result_that_cannot_be_written_is_no_verdict(streams: str) -> None:
    done = in_a_shell(streams, "explain", "RNG001")
    assert done.returncode == 2
    if "2>" not in streams:
        assert done.stderr.startswith("parityscope: the result cannot be written to standard output: ")
        assert "  fix:   " in done.stderr


def test_a_reader_that_has_gone_is_no_verdict() -> None:
    """`compare ... | head` must not end as "within" because nobody read that it is not."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "parityscope", "explain", "RNG001"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(writing)
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&-"])
def test_streams_that_hold_no_result_change_no_verdict(tmp_path: Path, streams: str) -> None:
    words = make_world(tmp_path)
    words[words.index("ort")] = f"saved?path={tmp_path / 'far.npz'}"
    done = in_a_shell(streams, *words, "--study", str(tmp_path / "study"))
    assert done.returncode == 1
    assert "times FP32's expected rounding error" in " ".join(done.stdout.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_would_obey_and_what_an_encoding_lacks_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    words = make_world(tmp_path, EVIL)
    streams = Screen(encoding), Screen(encoding)
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setenv("COLUMNS", "140")
    assert exit_status(*words, "--study", str(tmp_path / "study")) == 0
    assert make_visible(streams[0].told()) == streams[0].told()
    assert "\\x1b[31mred" in streams[0].told()
    assert ("é" in streams[0].told()) == (encoding != "ascii")
    assert exit_status("lint", EVIL) == 2
    assert make_visible(streams[1].told()) == streams[1].told()
    assert "there is no model at \\u001b[31mred" in streams[1].told()


@pytest.mark.parametrize("verb", ["compare", "lint"])
def test_colours_are_ours_and_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    words = make_world(tmp_path, EVIL)
    words = [*words, "--study", str(tmp_path / "study")] if verb == "compare" else ["lint", words[1]]
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert exit_status(*words) == 0
    assert "\x1b[1" in screen.told()
    assert all(part not in screen.told() for part in ("\x1b[31mred", "\x1b[K", "\x9b", "\u202e", "\r"))


def test_json_stays_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = make_world(tmp_path, "\x7f\U0001f389é")
    monkeypatch.setattr(sys, "stdout", screen := Screen("ascii"))
    assert (
        exit_status("predict", words[1], "--inputs", str(tmp_path / "x.npz"), "--format", "json", "--formats", "f16")
        == 0
    )
    assert json.loads(screen.told())["formats"][0]["outputs"][0]["site"]["tensor"] == "\x7f\U0001f389é"


def test_a_file_name_that_is_no_utf8_is_told_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, samples = make_world(tmp_path), tmp_path / os.fsdecode(b"sample-\xff.npz")
    (tmp_path / "x.npz").rename(samples)
    words[words.index("--inputs") + 1] = str(samples)
    assert exit_status(*words, "--study", str(tmp_path / "study")) == 0
    told = capsys.readouterr().out.replace("\n", "")  # wherever a long path is wrapped
    assert "sample-\\udcff.npz" in told
    assert "sample-\\udcff.npz" in (tmp_path / "study" / "report.html").read_text(encoding="utf-8")


def test_somebody_without_a_name_and_a_home_is_served(tmp_path: Path) -> None:
    """As a container's user does, who is a number only."""
    nobody = "import pwd, sys\npwd.getpwuid = {}.__getitem__\nfrom parityscope.cli import main\nmain()"
    words = [sys.executable, "-c", nobody, *make_world(tmp_path), "--study", str(tmp_path / "study")]
    words[words.index("compare")] = "diagnose"
    homeless = {key: value for key, value in os.environ.items() if key != "HOME"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=500, env=homeless)
    assert (done.returncode, done.stderr) == (0, "")
