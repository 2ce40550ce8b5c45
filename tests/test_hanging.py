"""A hypothesis that never ends and one that ends its process are skips with names and reasons; the others find the fault."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from command_line import exit_status, read_study
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.searching import generated_kinds
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx
    import pytest

    from parityscope.hypotheses.stretch import ComputedStretch

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[8,20] x) => (float[8,6] y) {
  a = MatMul(x, w)
  h = LeakyRelu<alpha = 0.1>(a)
  y = MatMul(h, v)
}"""
DRAW = np.random.default_rng(41)
WEIGHTS = {"w": DRAW.normal(size=(20, 32)).astype(np.float32), "v": DRAW.normal(size=(32, 6)).astype(np.float32)}


def never_end(_: np.ndarray) -> np.ndarray:
    while True:
        pass


def end_process(_: np.ndarray) -> np.ndarray:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def with_bad_edits(
    stretch: ComputedStretch, nodes: list[tuple[int, onnx.NodeProto]]
) -> Iterator[tuple[str, Iterator[StretchEdit]]]:
    """Two edits before all others."""
    yield (
        "values",
        iter(
            [
                StretchEdit(words="the result computed for ever", bits=1.0, at=0, after=never_end),
                StretchEdit(words="the result ends the process", bits=1.0, at=0, after=end_process),
            ]
        ),
    )
    yield from generated_kinds(stretch, nodes)


def diagnose(folder: Path, *options: str, run: Callable[..., int] = exit_status) -> dict[str, Any]:
    """The study of a recording of a build that takes LeakyRelu for Relu."""
    for name in ("inputs", "recorded"):
        (folder / name).mkdir()
    model = write_network(folder / "model.onnx", NETWORK, WEIGHTS)
    for number in range(2):
        x = DRAW.normal(size=(8, 20)).astype(np.float32)
        a = x @ WEIGHTS["w"]
        h = np.maximum(a, 0)
        np.savez(folder / "inputs" / f"{number}.npz", x=x)
        np.savez(folder / "recorded" / f"{number}.npz", a=a, h=h, y=h @ WEIGHTS["v"])
    words = ("diagnose", str(model), "--inputs", str(folder / "inputs"), "--quiet", "--study", str(folder / "s"))
    assert run(*words, "--candidate", f"saved?path={folder / 'recorded'}", *options) == 1
    study = read_study(folder / "s")
    first = study["findings"][0]
    assert (first["role"], first["site"]["tensor"]) == ("cause", "h")
    return study


def test_an_edit_that_hangs_and_one_that_crashes_are_skipped_and_the_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parityscope.hypotheses.searching.generated_kinds", with_bad_edits)
    monkeypatch.setattr("parityscope.hypotheses.worker.PATIENCE_S", 4.0)
    # The child is a fork of this process, which knows these edits.
    monkeypatch.setattr("parityscope.fork_server.has_threads_of_others", lambda: False)
    reasons = {one["what"]: one["reason"] for one in diagnose(tmp_path)["skipped"]}
    assert reasons["hypothesis of h: the result computed for ever"] == "it never ended"
    assert reasons["hypothesis of h: the result ends the process"] == "it ended the process that computed it"


# A program that knows a check of its own, as a package's check would be, and asks as a user does.
PROGRAM = """
import sys, time
import parityscope.diagnosis
from parityscope.checks import Check, Claim, Prediction, known_checks
from parityscope.cli import run_command

def hang():
    while True:
        time.sleep(1.0)

def propose():
    yield Claim(words="it hangs", predicts=Prediction(measure="nothing", if_true="nothing", if_false="nothing"), test=hang)

checks = {**known_checks(), "XYZ001": Check(code="XYZ001", title="It hangs", propose=propose, holds=(), holds_not=())}
parityscope.diagnosis.known_checks = lambda: checks
sys.exit(run_command(sys.argv[1:]))
"""


def test_a_check_of_others_that_hangs_is_skipped_and_the_fault_is_found(tmp_path: Path) -> None:
    def run(*words: str) -> int:
        return subprocess.run([sys.executable, "-c", PROGRAM, *words], check=False, capture_output=True).returncode

    # It has half of the time, and the others what is left: more than they need on a busy machine.
    (skip,) = [one for one in diagnose(tmp_path, "--time", "30s", run=run)["skipped"] if "XYZ001" in one["what"]]
    assert skip["what"] == "experiment XYZ001-1: it hangs"
    assert skip["reason"] == "the check itself did not end, and was ended"
