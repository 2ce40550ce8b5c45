"""What a candidate's file says by its types is its declared arithmetic, where nobody says otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from command_line import exit_status, read_study
from hardware import needs_int8_dot_products
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import load_model
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g (float[2,64] x) => (float[2,16] y)'
PLAIN = HEAD + " { a = MatMul(x, v)  b = Tanh(a)  y = MatMul(b, w) }"
HALF = (
    HEAD + " { h = Cast<to = 10>(x)  a = MatMul(h, v)  b = Tanh(a)  c = MatMul(b, w)  y = Cast<to = 1>(c) }"
)  # as converters write that keep the types of inputs and outputs
ISLAND = (
    HEAD + " { a = MatMul(x, v)  h = Cast<to = 10>(a)  b = Tanh(h)  c = Cast<to = 1>(b)  y = MatMul(c, w) }"
)  # no input, output or weight of it is float16
STORED = HEAD + " { wide = Cast<to = 1>(v)  a = MatMul(x, wide)  b = Tanh(a)  y = MatMul(b, w) }"
FOUR = HEAD + " { wide = DequantizeLinear(v, unit)  a = MatMul(x, wide)  b = Tanh(a)  y = MatMul(b, w) }"
QUANTIZED = (
    HEAD
    + """ {
  xq = QuantizeLinear(x, xs, zero)  xd = DequantizeLinear(xq, xs, zero)
  vq = QuantizeLinear(v, vs, zero)  vd = DequantizeLinear(vq, vs, zero)
  a = MatMul(xd, vd)  b = Tanh(a)
  bq = QuantizeLinear(b, bs, zero)  bd = DequantizeLinear(bq, bs, zero)
  wq = QuantizeLinear(w, ws, zero)  wd = DequantizeLinear(wq, ws, zero)
  y = MatMul(bd, wd)
}"""
)
_RNG = np.random.default_rng(31)
X = _RNG.normal(size=(2, 64)).astype(np.float32)
V = (_RNG.normal(size=(64, 32)) / 8).astype(np.float32)
W = (_RNG.normal(size=(32, 16)) / 6).astype(np.float32)


def _scale(array: np.ndarray) -> np.ndarray:
    return np.array(np.abs(array).max() / 127, np.float32)


SCALES = {"xs": _scale(X), "vs": _scale(V), "bs": np.array(1 / 127, np.float32), "ws": _scale(W)}
CANDIDATES: dict[str, tuple[str, Mapping[str, np.ndarray]]] = {
    "plain": (PLAIN, {"v": V, "w": W}),
    "half": (HALF, {"v": V.astype(np.float16), "w": W.astype(np.float16)}),
    "island": (ISLAND, {"v": V, "w": W}),
    "stored": (STORED, {"v": V.astype(ml_dtypes.bfloat16), "w": W}),
    "quantized": (QUANTIZED, {"v": V, "w": W, "zero": np.array(0, np.int8), **SCALES}),
}


def _written(folder: Path, name: str) -> Path:
    text, constants = CANDIDATES[name]
    return write_network(folder / f"{name}.onnx", text, constants)


def _diagnosed(folder: Path, candidate: str, *words: str, verb: str = "diagnose") -> tuple[int, dict[str, Any]]:
    """The exit code and the study of the plain network against `candidate`; `compare` gives all but causes."""
    write_npz(folder / "x.npz", {"x": X})
    line = [str(_written(folder, "plain")), "--inputs", str(folder / "x.npz"), "--candidate", candidate]
    code = exit_status(verb, *line, "--study", str(folder / "study"), "--quiet", *words)
    path = folder / "study" / "study.json"
    return code, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.search_of(1.0)
@pytest.mark.parametrize(
    ("name", "declared"), [("half", "f16"), ("island", "f16"), ("stored", "bf16"), ("quantized", "int8")]
)
def test_a_converted_file_is_not_blamed_for_its_own_types(tmp_path: Path, name: str, declared: str) -> None:
    if declared == "int8":
        needs_int8_dot_products()
    code, found = _diagnosed(tmp_path, f"ort?model={_written(tmp_path, name)}")
    assert (found["policy"]["declared"], code) == (declared, 0)
    assert found["policy"]["declared_reason"] == "the types of the candidate's file say so"
    assert "ACC001" not in {one["code"] for one in found["findings"]}


def test_what_the_user_declares_goes_before_the_types(tmp_path: Path) -> None:
    code, found = _diagnosed(tmp_path, f"ort?model={_written(tmp_path, 'half')}", "--declared", "f32", verb="compare")
    assert (found["policy"]["declared"], code) == ("f32", 1)


@pytest.mark.parametrize(("name", "precision"), [("half", "f16"), ("island", "f16"), ("stored", "bf16")])
def test_a_precision_is_taken_where_the_file_holds_it_anywhere(tmp_path: Path, name: str, precision: str) -> None:
    code, _ = _diagnosed(tmp_path, f"ort:{precision}?model={_written(tmp_path, name)}", verb="compare")
    assert code == 0


@pytest.mark.parametrize(
    ("name", "precision", "told"),
    [
        ("plain", "f16", "f16 is declared, and nothing in the file is float16"),
        ("half", "bf16", "bf16 is declared, and nothing in the file is bfloat16"),
        ("half", "f32", "f32 is declared, but the file holds float16"),
    ],
)
def test_a_precision_that_the_file_contradicts_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, precision: str, told: str
) -> None:
    code, _ = _diagnosed(tmp_path, f"ort:{precision}?model={_written(tmp_path, name)}")
    assert code == 2
    assert told in capfd.readouterr().err


def test_a_file_that_takes_other_types_is_refused_with_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = HALF.replace("float[2,64]", "float16[2,64]").replace("h = Cast<to = 10>(x)", "h = Identity(x)")
    halves = write_network(tmp_path / "halves.onnx", text, CANDIDATES["half"][1])
    code, _ = _diagnosed(tmp_path, f"ort?model={halves}")
    told = capfd.readouterr().err
    assert code == 2
    assert "input 'x' is float16 in the candidate's file and float32 in the reference's" in told
    assert "keep_io_types=True" in told


@pytest.mark.search_of(0.1)
def test_a_format_of_which_nobody_knows_the_cost_is_not_blamed(tmp_path: Path) -> None:
    steps = np.round(V / 0.1)
    four = onnx.helper.make_tensor("v", onnx.TensorProto.INT4, V.shape, np.clip(steps, -8, 7).astype(int).ravel())
    model = onnx.parser.parse_model(FOUR)
    model.graph.initializer.extend([four, onnx.numpy_helper.from_array(np.array(0.1, np.float32), "unit")])
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    onnx.save(model, tmp_path / "four.onnx")
    code, found = _diagnosed(tmp_path, f"ort?model={tmp_path / 'four.onnx'}", verb="compare")
    assert (found["policy"]["declared"], code) == ("int4", 3)
    assert found["outputs"][0]["verdict"] == "incomplete"
    assert found["outputs"][0]["reason"].partition("; ")[2] == (
        "no expectation for int4 could be computed; state a budget, such as --budget rel_l2=1e-3"
    )


def test_types_inside_of_bodies_and_constants_count_and_bytes_of_an_image_do_not(tmp_path: Path) -> None:
    branch = (
        HEAD
        + """ {
      go = Constant<value = bool {1}>()
      y = If(go) <then_branch = t () => (float[2,16] p) { h = Cast<to = 16>(x)  u = Cast<to = 1>(h)  p = MatMul(u, v) },
                  else_branch = e () => (float[2,16] q) { q = MatMul(x, v) }>
    }"""
    )
    constant = (
        HEAD + " { c = Constant<value = float16[1] {16384}>()  d = Cast<to = 1>(c)  a = Mul(x, d)  y = MatMul(a, v) }"
    )
    image = HEAD.replace("float[2,64]", "uint8[2,64]") + " { a = Cast<to = 1>(x)  y = MatMul(a, v) }"
    packed = HEAD + " { y = com.microsoft.MatMulNBits<K = 64, N = 16, bits = 4, block_size = 64>(x, v, s) }"
    constants = {"v": V[:, :16], "s": np.ones(16, np.float32)}
    found = [
        load_model(write_network(tmp_path / f"{place}.onnx", text, constants)).formats
        for place, text in enumerate((branch, constant, image, packed))
    ]
    assert found == [("bf16",), ("f16",), (), ("int4",)]


def test_a_half_precision_reference_is_not_held_to_a_finer_arithmetic_than_its_types(tmp_path: Path) -> None:
    """ONNX Runtime's CPU provider computes the file in FP32; a deployment that rounds as it is typed is right all the same."""
    model = _written(tmp_path, "half")
    write_npz(tmp_path / "x.npz", {"x": X})
    words = (
        "compare",
        str(model),
        "--candidate",
        "sim",
        "--declared",
        "f32",
        "--inputs",
        str(tmp_path / "x.npz"),
        "--quiet",
    )
    assert exit_status(*words, "--study", str(tmp_path / "study")) == 0
    held = read_study(tmp_path / "study")
    assert held["policy"]["declared"] == "f16"
    assert held["outputs"][0]["rel_l2"] > 1e-5
