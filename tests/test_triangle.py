"""The triangle and the ladder from the command line: what a format costs anyway, and what is the engine's own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

import parityscope
from command_line import exit_status, read_study
from parityscope.backends.targets import parse_target
from parityscope.case.formats.npz import write_npz
from parityscope.study.triangle import Triangle, peer_of

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[4,64] x) => (float[4,8] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    draw = np.random.default_rng(7)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in (("w", (64, 32)), ("v", (32, 8))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name))
    onnx.save(model, tmp_path / "net.onnx")
    write_npz(tmp_path / "x.npz", {"x": draw.normal(size=(4, 64)).astype(np.float32)})
    return tmp_path / "net.onnx", tmp_path / "x.npz"


def triangle(c: float, p: float) -> Triangle:
    return Triangle(peer="sim:f16", candidate_reference=c, peer_reference=p, candidate_peer=0.0)


def test_what_is_the_engines_own() -> None:
    # 3-4-5: of an error of 5 of which the format costs 4 anyway, 3 is left in squares.
    assert triangle(5.0, 4.0).own == 3.0
    assert triangle(4.0, 5.0).own == 0.0
    assert triangle(math.inf, 0.1).own == math.inf
    # An error that any engine of that format makes is not this one's own, however large.
    assert triangle(math.inf, math.inf).own == 0.0
    assert triangle(0.5, math.inf).own == 0.0


def test_a_peer_is_the_simulation_of_the_same_precision() -> None:
    found = peer_of(parse_target("openvino:bf16"), "bf16")
    assert found == parse_target("sim:bf16?profile=openvino")
    assert peer_of(parse_target("ort"), "f32") is None
    assert peer_of(parse_target("sim:bf16"), "bf16") is None


def test_a_candidate_that_is_its_own_peer_has_nothing_of_its_own(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = files
    command = ["diagnose", str(model), "--candidate", "sim:bf16", "--peer", "sim:bf16", "--inputs", str(inputs)]
    assert exit_status(*command, "--study", str(tmp_path / "s"), "--quiet") == 0
    (output,) = read_study(tmp_path / "s")["outputs"]
    found = output["triangle"]
    assert found["candidate_peer"] == 0.0
    assert found["own"] == 0.0
    assert found["peer_reference"] == found["candidate_reference"] == output["rel_l2"] > 1e-3


def test_the_ladder_is_printed_when_asked(
    files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, inputs = files
    command = ["compare", str(model), "--candidate", "sim:bf16", "--inputs", str(inputs), "--quiet"]
    assert exit_status(*command, "--study", str(tmp_path / "a")) in {0, 3}
    assert "loose to tight" not in capfd.readouterr().out
    assert exit_status(*command, "--ladder", "--study", str(tmp_path / "b")) in {0, 3}
    said = capfd.readouterr().out
    assert "loose to tight" in said
    rungs = read_study(tmp_path / "b")["ladder"]
    assert rungs[0]["failing"] == 0
    # BF16 rounds by up to 2^-9: every tensor is within 3 % and none within 1e-4.
    assert rungs[0]["tolerance"] <= 0.03
    assert rungs[-1]["failing"] == 2
    assert rungs[-1]["tolerance"] >= 1e-4


def test_tensors_are_graded_by_the_arithmetic_that_the_outputs_show(files: tuple[Path, Path]) -> None:
    model, inputs = files
    study = parityscope.diagnose(model, candidate="sim:tf32", inputs=inputs, declared="f32")
    grades = {row["name"]: row["grade"] for row in study.document["tensors"]}
    assert grades["h"] == "tf32"
