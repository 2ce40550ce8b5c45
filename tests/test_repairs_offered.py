"""What is offered for a cause: of what was tried figures that say something, and a barrier only where a fusion can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

from command_line import in_this_process, read_study
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

DRAW = np.random.default_rng(17)
CLASSES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,16] x) => (float[N,5] scores, int64[N] label) {
  m = MatMul(x, w)
  s = Mul(m, t)
  scores = Softmax(s)
  label = ArgMax<axis = 1, keepdims = 0>(s)
}"""
CLASSES_HELD = {"w": DRAW.normal(size=(16, 5)).astype(np.float32), "t": np.float32([1, 2, 1, 0.5, 1])}
PADDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,12,12] x) => (float[1,5,10,10] y) {
  a = Tanh(x)
  p = Pad<mode = "constant">(a, pads)
  c = Conv(p, k)
  r = Relu(c)
  y = Conv(r, l)
}"""
PADDED_HELD = {
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
    "k": DRAW.normal(size=(4, 3, 3, 3)).astype(np.float32),
    "l": DRAW.normal(size=(5, 4, 3, 3)).astype(np.float32),
}


def write_samples(folder: Path, shape: tuple[int, ...]) -> None:
    (folder / "inputs").mkdir()
    for number in range(3):
        np.savez(folder / "inputs" / f"{number}.npz", x=DRAW.normal(size=shape).astype(np.float32))


def test_a_trial_of_outputs_of_integers_has_figures(tmp_path: Path) -> None:
    write_network(tmp_path / "model.onnx", CLASSES, CLASSES_HELD)
    write_network(tmp_path / "other.onnx", CLASSES, CLASSES_HELD | {"t": np.float32([1, 2, 1, 0.5, 4])})
    write_samples(tmp_path, (4, 16))
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "other.onnx", "--study", "study")
    done = in_this_process(*words, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    told = " ".join(done.stdout.split())
    assert "tried: " in told
    assert "NaN or infinite" not in told
    trials = [one["trial"] for each in read_study(tmp_path / "study")["findings"] for one in each["repairs"]]
    (trial,) = [one for one in trials if one]
    assert trial["before"] > trial["after"] == 0.0
    assert trial["output"] == "scores"


def test_an_attribute_that_a_recording_has_wrong_is_compared_and_needs_no_barrier(tmp_path: Path) -> None:
    write_network(tmp_path / "model.onnx", PADDED, PADDED_HELD)
    wrong = write_network(tmp_path / "wrong.onnx", PADDED.replace('"constant"', '"edge"'), PADDED_HELD)
    write_samples(tmp_path, (1, 3, 12, 12))
    session = onnxruntime.InferenceSession(wrong)
    (tmp_path / "kept").mkdir()
    for number in range(3):
        with np.load(tmp_path / "inputs" / f"{number}.npz") as held:
            (y,) = session.run(["y"], dict(held))
        np.savez(tmp_path / "kept" / f"{number}.npz", y=y)
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "kept", "--study", "study")
    assert in_this_process(*words, folder=tmp_path).returncode == 1
    (cause,) = [one for one in read_study(tmp_path / "study")["findings"] if one["role"] == "cause"]
    assert "mode edge in place of constant" in cause["claim"]
    assert [one["repair"] for one in cause["repairs"]] == ["compare_node"]
