"""`--match` of verify and repair: rows of TopK's outputs are paired before they are compared, as `diagnose` pairs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status
from parityscope.case.formats.npz import write_npz

if TYPE_CHECKING:
    from pathlib import Path

# The four best of eight rows by a score; the boxes are those of the best.
_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[8,4] x) => (float[4] scores, float[4,4] boxes) {
  s = MatMul(x, w)
  k = Constant<value_ints = [4]>()
  flat = Constant<value_ints = [8]>()
  row = Reshape(s, flat)
  scores, best = TopK(row, k)
  boxes = Gather<axis = 0>(x, best)
}"""
_MOVED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[8,4] x) => (float[4] scores, float[4,4] boxes) {
  s = MatMul(x, w)
  k = Constant<value_ints = [4]>()
  flat = Constant<value_ints = [8]>()
  row = Reshape(s, flat)
  found, best = TopK(row, k)
  these = Gather<axis = 0>(x, best)
  order = Constant<value_ints = [2, 0, 3, 1]>()
  ordered = Gather<axis = 0>(found, order)
  moved = Gather<axis = 0>(these, order)
  scores = Mul(ordered, gain)
  boxes = Mul(moved, gain)
}"""


def _written(text: str, path: Path, gain: float = 1.0) -> Path:
    model = onnx.parser.parse_model(text)
    # Only the first number of a row is its score.
    constants = {"w": np.array([[1], [0], [0], [0]], np.float32), "gain": np.array(gain, np.float32)}
    for name, array in constants.items():
        if f"{name})" in text:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The model, and 64 samples in which the best two scores are one number in FP16 and two in FP32, the later row's larger.

    FP16 has a step of 2^-10 from 1 to 2: 1.5 + 2^-13 rounds to 1.5, and of equal scores TopK gives the row first that stands
    first. So in FP16 the two rows change their places, and each moves by at most a rounding.
    """
    _written(_MODEL, tmp_path / "model.onnx")
    draw = np.random.default_rng(12)
    for number in range(64):
        x = draw.uniform(-1, 1, size=(8, 4)).astype(np.float32)
        first, second = sorted(draw.choice(8, size=2, replace=False))
        x[first, 0], x[second, 0] = 1.5, 1.5 + 2.0**-13
        write_npz(tmp_path / "inputs" / f"{number:06d}.npz", {"x": x})
    return tmp_path


def _verified(place: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    before = _written(_MOVED, place / f"before{len(words)}.onnx", gain=1.2)
    after = _written(_MOVED, place / f"after{len(words)}.onnx")
    given = ["verify", str(place / "model.onnx"), "--before", f"ort?model={before}", "--after", f"ort?model={after}"]
    study = ["--inputs", str(place / "inputs"), "--study", str(place / f"study{len(words)}"), "--no-timing", "--quiet"]
    code = exit_status(*given, *study, "--budget", "rel_l2=1e-3", "--format", "json", *words)
    return code, json.loads(capfd.readouterr().out)


def test_verify_pairs_rows(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = _verified(place, capfd, "--match", "scores,boxes")
    assert (code, found["verdict"]) == (0, "improved")
    after = {one["output"]: one["after"] for one in found["outputs"]}
    assert after["boxes"]["rel_l2"] == after["scores"]["rel_l2"] == 0.0


def test_verify_without_pairing_sees_other_rows(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = _verified(place, capfd)
    assert code == 1
    assert {one["output"]: one["after"]["rel_l2"] > 0.1 for one in found["outputs"]}["boxes"]


def test_verify_takes_the_names_of_a_policy(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    policy = place / "policy.toml"
    policy.write_text('match = ["scores", "boxes"]\n', encoding="utf-8")
    code, found = _verified(place, capfd, "--policy", str(policy))
    assert (code, found["verdict"]) == (0, "improved")


def test_a_name_that_is_no_output_is_an_error(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, inputs = str(place / "model.onnx"), str(place / "inputs")
    words = ["verify", model, "--before", "ort", "--after", "ort", "--inputs", inputs, "--match", "bokses"]
    assert exit_status(*words, "--study", str(place / "study")) == 2
    assert "the rows of 'bokses' are to be matched" in capfd.readouterr().err
    assert exit_status("repair", model, "--inputs", inputs, "--match", "bokses") == 2
    assert "the rows of 'bokses' are to be matched" in capfd.readouterr().err


def _repaired(place: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    given = ["repair", str(place / "model.onnx"), "--inputs", str(place / "inputs"), "--low", "f16", "--quiet"]
    code = exit_status(*given, "--budget", "rel_l2=1e-2", "--format", "json", *words)
    return code, json.loads(capfd.readouterr().out)


def test_repair_pairs_rows(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = _repaired(place, capfd, "--match", "scores,boxes")
    # Rows of equal scores stand in another order, and each is as FP16 rounds it: nothing has to stay in FP32.
    assert (code, found["verdict"]) == (0, "nothing")


def test_repair_without_pairing_keeps_nodes_for_the_sake_of_order(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, found = _repaired(place, capfd)
    assert found["verdict"] != "nothing"
