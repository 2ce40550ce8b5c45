"""The founding case of mixed precision: Casts around Pow and ReduceSum whose FP32 island an engine does not honour."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from command_line import exit_status
from parityscope.arithmetic.islands import find_islands, model_ignoring_islands
from parityscope.case import load_model
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network
from simulated import detype

if TYPE_CHECKING:
    from pathlib import Path

MIXED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,64] x) => (float[4,16] y) {
  h = Cast<to = 10>(x)
  a = MatMul(h, w0)
  wide = Cast<to = 1>(a)
  squares = Pow(wide, two)
  total = ReduceSum<keepdims = 1>(squares, axes)
  length = Sqrt(total)
  unit = Div(wide, length)
  n = Cast<to = 10>(unit)
  b = MatMul(n, w1)
  y = Cast<to = 1>(b)
}"""
# A second island behind the first in which nothing is too large: whether it is honoured cannot be seen.
TWO = MIXED.replace("  y = Cast<to = 1>(b)", "  c = Cast<to = 1>(b)\n  y = Tanh(c)")
MAGIKA = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/"
# The nodes of its second normalization and of its GELU that need FP32: 2e5 and 1.6e5 are reached there.
KEPT = (
    *(f"ApplyActivation_1/{name}" for name in ("Mul_1", "Mul_2", "AddV2", "Mul_3")),
    *(f"LayerNorm_1/{name}" for name in ("Sum", "truediv", "Square_1", "Sub_1", "Square", "Sum_1", "truediv_1", "Sub")),
    *(f"LayerNorm_1/{name}" for name in ("AddV2", "Rsqrt", "Rsqrt__136", "Mul", "Mul_1", "AddV2_1")),
)


def constants(size: float) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(5)
    return {
        "w0": (draw.normal(size=(64, 64)) * size).astype(np.float16),
        "w1": (draw.normal(size=(64, 16)) / 8).astype(np.float16),
        "two": np.array(2, np.float32),
        "axes": np.array([-1], np.int64),
    }


def diagnosed(model: Path, inputs: Path, candidate: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    study = model.parent / f"study-{len(list(model.parent.iterdir()))}"
    line = ["diagnose", str(model), "--inputs", str(inputs), "--candidate", candidate, "--declared", "f16"]
    code = exit_status(*line, "--format", "json", "--quiet", "--study", str(study))
    said = capfd.readouterr()
    assert code in {0, 1}, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.parametrize("text", [MIXED, TWO], ids=["one", "two"])
@pytest.mark.parametrize("way", ["recorded", "simulated"])
def test_an_island_of_squares_that_was_fused_over(
    text: str, way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = load_model(write_network(tmp_path / "mixed.onnx", text, constants(20)))
    x = np.random.default_rng(6).normal(size=(4, 64)).astype(np.float32)
    x[1::2] /= 100  # rows whose squares fit: something is left to compare
    write_npz(tmp_path / "x.npz", {"x": x})
    ignored = model_ignoring_islands(model.graph(), find_islands(model.graph()))
    ir.save(ignored, tmp_path / "engine.onnx")
    candidate = f"sim?model={tmp_path / 'engine.onnx'}"
    if way == "recorded":
        write_npz(tmp_path / "y.npz", detype(ignored)({"x": x}, ["y"]))
        candidate = f"saved?path={tmp_path / 'y.npz'}"
    found = diagnosed(model.path, tmp_path / "x.npz", candidate, capfd)
    first = found["findings"][0]
    assert (found["verdict"], first["code"], first["role"]) == ("beyond", "CST003", "cause")
    assert (first["site"]["tensor"], first["site"]["op_type"]) == ("squares", "Pow")
    assert first["details"]["nodes"] == ["Pow#3", "ReduceSum#4", "Sqrt#5", "Div#6"]
    # Exactly these layers, as TensorRT 8 to 10 have to be told: its parser calls nodes without a name after their first output.
    told = "node_of_squares:fp32,node_of_total:fp32,node_of_length:fp32,node_of_unit:fp32"
    assert f"--layerPrecisions={told} --layerOutputTypes={told}" in first["repairs"][1]["command"]


def test_an_island_that_is_honoured_is_not_blamed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_network(tmp_path / "mixed.onnx", MIXED, constants(20))
    write_npz(tmp_path / "x.npz", {"x": np.random.default_rng(6).normal(size=(4, 64)).astype(np.float32)})
    found = diagnosed(path, tmp_path / "x.npz", "sim", capfd)
    assert found["verdict"] == "within"
    assert "CST003" not in {one["code"] for one in found["findings"]}


def test_islands_are_what_casts_enclose(tmp_path: Path) -> None:
    graph = load_model(write_network(tmp_path / "two.onnx", TWO, constants(20))).graph()
    found = find_islands(graph)
    assert [one.tensors for one in found] == [("squares", "total", "length", "unit"), ("y",)]
    assert {one.around for one in found} == {"f16"}
    plain = write_network(
        tmp_path / "p",
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { a = Exp(x) y = Neg(a) }',
        {},
    )
    assert find_islands(load_model(plain).graph()) == ()


def test_an_ignored_island_keeps_names_types_and_values(tmp_path: Path) -> None:
    """With numbers that float16 holds exactly, ignoring the island changes nothing; outputs stay float32."""
    model = load_model(write_network(tmp_path / "two.onnx", TWO, constants(20)))
    values = {
        name: np.rint(array * 0 + 1).astype(array.dtype) for name, array in constants(1).items() if name[0] == "w"
    }
    exact = load_model(write_network(tmp_path / "exact.onnx", TWO, {**constants(1), **values}))
    assert model.sites.keys() == exact.sites.keys()
    x = np.zeros((4, 64), np.float32)
    x[:, 0] = [1, 2, 4, 8]  # every sum is that number, its square 1 to 64, the sum of 64 equal squares a square again
    ignored = model_ignoring_islands(exact.graph(), find_islands(exact.graph()))
    names = ["squares", "total", "length", "unit", "y"]
    plain = detype(exact.graph())({"x": x}, names)
    narrow = detype(ignored)({"x": x}, names)
    types = {str(value.name): value.dtype for node in ignored.graph for value in node.outputs}
    assert (types["squares"], types["y"]) == (ir.DataType.FLOAT16, ir.DataType.FLOAT)
    assert narrow["y"].dtype == plain["y"].dtype == np.dtype(np.float32)
    for name in ("squares", "total", "length", "unit"):
        np.testing.assert_array_equal(plain[name], narrow[name].astype(np.float32))
