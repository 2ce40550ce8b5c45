"""Two commands that write the same file: one wins, the other is told at once, and nothing of either is lost."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status
from parityscope.cli.shell.output import claim_file, release_claims
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y) { h = Tanh(x)  y = Mul(h, x) }'


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    onnx.save(onnx.parser.parse_model(SMALL), tmp_path / "small.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    release_claims()


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "small.onnx", "--inputs", "x.npz", "-o", "told.json"),
        ("lint", "small.onnx", "-o", "told.json"),
        ("repair", "small.onnx", "--inputs", "x.npz", "--budget", "rel_l2=0.1", "-o", "told.json"),
        ("repair", "small.onnx", "--inputs", "x.npz", "--budget", "rel_l2=0.1", "-o", "fixed.onnx", "-o", "told.json"),
    ],
)
def test_a_name_that_another_command_writes_is_refused(
    desk: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    held = os.open(desk / ".told.json.part", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert exit_status(*words) == 2
    assert "another process is writing told.json" in capfd.readouterr().err
    os.close(held)  # as the system does when a process is killed
    assert exit_status(*words) in {0, 1, 3}
    assert not (desk / ".told.json.part").exists()


def test_of_two_commands_at_once_one_wins(desk: Path) -> None:
    line = [sys.executable, "-m", "parityscope", "predict", "small.onnx", "--inputs", "x.npz", "-o", "told.json"]
    both = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate()[1] for one in both]
    assert sorted(one.returncode for one in both)[1] == 2
    lost = next(words for words, one in zip(said, both, strict=True) if one.returncode == 2)
    assert "told.json" in lost
    assert json.loads((desk / "told.json").read_text(encoding="utf-8"))["formats"]
    assert list(desk.glob(".*.part")) == []


def test_what_cannot_be_claimed_is_an_error(desk: Path) -> None:
    claim_file(desk / "once", "-o")
    with pytest.raises(ParityError, match="two options name"):
        claim_file(desk / "once", "--report")
    with pytest.raises(ParityError, match="there is no folder"):
        claim_file(desk / "nowhere" / "told.json", "-o")
    (desk / ".linked.part").symlink_to(desk / "small.onnx")
    with pytest.raises(ParityError, match="cannot be written"):
        claim_file(desk / "linked", "-o")
    (desk / "dangling").symlink_to(desk / "gone")
    with pytest.raises(ParityError, match="exists already"):
        claim_file(desk / "dangling", "-o")
