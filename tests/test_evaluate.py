"""`parityscope evaluate`: faithful figures of typed models, with and without their original."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16

from command_line import exit_status
from parityscope.arithmetic.typed import typed_model
from parityscope.arithmetic.typed.lifting import float32_copy, low_formats, read_as_float32
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case.model import read_graph

if TYPE_CHECKING:
    from pathlib import Path

# (300·x)·(1e-3·300): 300·300 is beyond float16's 65,504; the scale brings it back to 90.
ORIGINAL = """<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {
    c = Constant <value = float {300.0}> ()  s = Constant <value = float {0.001}> ()
    a = Mul (x, c)  y = Mul (a, s) }"""
QUANTIZED = """<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {
    s = Constant <value = float {0.5}> ()  z = Constant <value = int8 {0}> ()
    q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """original.onnx, its FP16 and BF16 forms, and two samples of 300 and 1.5 in data.npz (one in one of 16 bits)."""
    onnx.save(onnx.parser.parse_model(ORIGINAL), tmp_path / "original.onnx")
    for name, low in (("half", "f16"), ("brain", "bf16")):
        ir.save(typed_model(read_graph(tmp_path / "original.onnx"), low, {}).model, tmp_path / f"{name}.onnx")
    onnx.save(convert_float_to_float16(onnx.load(tmp_path / "original.onnx")), tmp_path / "low_io.onnx")
    onnx.save(onnx.parser.parse_model(QUANTIZED), tmp_path / "quantized.onnx")
    np.savez(tmp_path / "data.npz", x=np.array([300, 1.5], np.float32))
    np.savez(tmp_path / "half.npz", x=np.array([300, 1.5], np.float16))
    return tmp_path


def evaluated(folder: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document."""
    code = exit_status("evaluate", *words, "--format", "json", "--study", str(folder / "study"), "--quiet")
    out = capfd.readouterr()
    return code, json.loads(out.out) if out.out else {"problem": out.err}


def test_what_a_cpu_hides(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = evaluated(
        folder,
        capfd,
        f"{folder}/half.onnx",
        "--reference",
        f"{folder}/original.onnx",
        "--inputs",
        f"{folder}/data.npz",
    )
    assert code == 1
    output = found["outputs"][0]
    assert output["nonfinite"]["candidate"] == 1  # 300·300 overflows
    # ONNX Runtime says 90 with the two weights and the input rounded: 0.001 is 2^-10·1.024, off by up to 2^-11 there.
    assert found["findings"][0]["details"]["relative L2 of 'y' there"] < 2**-11
    assert found["candidate"]["declared"] == "f16"
    assert found["findings"][0]["title"] == "What ONNX Runtime's CPU provider says of the same model"
    assert found["candidate"]["target"] == f"sim?model={folder}/half.onnx"
    assert (folder / "study" / "report.html").is_file()
    assert not [skip for skip in found["skipped"] if skip["what"].startswith("tensor ")]


def test_low_borders_read_the_originals_samples(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"{folder}/low_io.onnx", "--reference", f"{folder}/original.onnx", "--inputs", f"{folder}/data.npz"]
    code, found = evaluated(folder, capfd, *words)
    assert code == 1
    assert found["outputs"][0]["nonfinite"]["candidate"] == 1


def test_bfloat16_is_judged_as_such(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [f"{folder}/brain.onnx", "--reference", f"{folder}/original.onnx", "--inputs", f"{folder}/data.npz"]
    code, found = evaluated(folder, capfd, *words)
    assert (code, found["candidate"]["declared"]) == (0, "bf16")
    # Three roundings behind each other and two of weights, each by at most 2^-9.
    assert 0 < found["outputs"][0]["rel_l2"] < 5 * 2**-9


def test_without_an_original_the_model_is_held_against_itself(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = evaluated(folder, capfd, f"{folder}/low_io.onnx", "--inputs", f"{folder}/half.npz")
    assert code == 1
    assert found["outputs"][0]["nonfinite"] == {"reference": 0, "candidate": 1, "agreeing": 0}
    stated = next(skip for skip in found["skipped"] if skip["what"] == "the rounding of the weights")
    assert stated["fix"] == "--reference ORIGINAL.onnx"
    assert found["model"]["path"] == f"{folder}/low_io.onnx"


def test_quantized_models_need_their_original(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = evaluated(folder, capfd, f"{folder}/quantized.onnx", "--inputs", f"{folder}/data.npz")
    assert code == 2
    assert "--reference ORIGINAL.onnx" in found["problem"]
    words = [f"{folder}/quantized.onnx", "--reference", f"{folder}/original.onnx", "--inputs", f"{folder}/data.npz"]
    code, found = evaluated(folder, capfd, *words)
    # 300 -> 63.5 and 1.5 -> 1.5 against 90 and 0.45
    assert found["outputs"][0]["rel_l2"] == pytest.approx(np.hypot(26.5, 1.05) / np.hypot(90, 0.45), rel=2**-20)
    assert found["findings"][0]["details"]["relative L2 of 'y' there"] == found["outputs"][0]["rel_l2"]


def test_the_ladder_of_a_typed_model_is_shown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = (f"{folder}/half.onnx", "--reference", f"{folder}/original.onnx", "--inputs", f"{folder}/data.npz")
    assert exit_status("evaluate", *words, "--ladder", "--study", str(folder / "study")) == 1
    ladder = capfd.readouterr().out.partition("Which tensors exceed which tolerance")[2].splitlines()
    assert ladder[1].split()[:3] == ["tolerance", "exceed", "it"]
    assert ladder[2].split()[1:5] == ["1", "of", "1", "Mul#0"]


def test_what_is_next_is_no_second_evaluation(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = (f"{folder}/brain.onnx", "--reference", f"{folder}/original.onnx", "--inputs", f"{folder}/data.npz")
    assert exit_status("evaluate", *words, "--study", str(folder / "study"), "--quiet") == 0
    told = capfd.readouterr().out
    assert "record its outputs and look at them: so far a prediction" in told
    assert "parityscope evaluate" not in told


def test_lifting(folder: Path) -> None:
    assert low_formats(read_graph(folder / "half.onnx")) == ["f16"]
    assert low_formats(read_graph(folder / "original.onnx")) == []
    lifted, notes = float32_copy(read_graph(folder / "half.onnx"))
    assert notes == []
    assert [(value.name, value.dtype) for value in lifted.graph.outputs] == [("y", ir.DataType.FLOAT)]
    scale = np.float32(np.float16(0.001))
    found = open_session(lifted)({"x": np.array([300], np.float32)})
    np.testing.assert_array_equal(found["y"], np.float32(90000) * scale)
    model = read_graph(folder / "low_io.onnx")
    assert read_as_float32(model, {"x": "float32"})
    assert [value.dtype for value in model.graph.inputs] == [ir.DataType.FLOAT]
    assert not read_as_float32(read_graph(folder / "low_io.onnx"), {"x": "float16"})
