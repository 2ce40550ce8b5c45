"""Another optimizer level and another exporter are within; another version is told as one, and no layer is blamed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from command_line import exit_status, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.search_of(1.0)
_RNG = np.random.default_rng(15)
_LAYERS = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,32] x) => (float[4,8] y) {
  a = MatMul(x, w0)
  b = Add(a, b0)
  c = Tanh(b)
  d = MatMul(c, w1)
  e = Add(d, b1)
  f = Tanh(e)
  y = MatMul(f, w2)
}"""
_SHAPES = {"w0": (32, 32), "b0": (32,), "w1": (32, 32), "b1": (32,), "w2": (32, 8)}
_WEIGHTS = {name: (_RNG.normal(size=shape) / 4).astype(np.float32) for name, shape in _SHAPES.items()}


_PICTURE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,16] x) => (float[1,8] y) {
  a = Conv<pads = [1, 1, 1, 1]>(x, k)
  n = BatchNormalization<epsilon = 0.001>(a, scale, shift, mean, spread)
  r = Relu(n)
  m = GlobalAveragePool(r)
  f = Flatten(m)
  y = Gemm<transB = 1>(f, w, b)
}"""
# What another exporter writes of it: the normalization is part of the convolution, and the product is two nodes.
_WRITTEN_AGAIN = """<ir_version: 7, opset_import: ["" : 13]> again (float[1,3,16,16] x) => (float[1,8] y) {
  t1 = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(x, folded, bias)
  t2 = Relu(t1)
  t3 = ReduceMean<axes = [2, 3], keepdims = 0>(t2)
  t4 = MatMul(t3, turned)
  y = Add(t4, b)
}"""
_PICTURE_WEIGHTS = {
    "k": (_RNG.normal(size=(16, 3, 3, 3)) / 5).astype(np.float32),
    "scale": _RNG.uniform(0.5, 2, 16).astype(np.float32),
    "shift": _RNG.normal(size=16).astype(np.float32),
    "mean": (_RNG.normal(size=16) / 4).astype(np.float32),
    "spread": _RNG.uniform(0.2, 2, 16).astype(np.float32),
    "w": (_RNG.normal(size=(8, 16)) / 4).astype(np.float32),
    "b": _RNG.normal(size=8).astype(np.float32),
}


def _diagnosed(
    folder: Path, model: Path, candidate: str, *words: str, command: str = "diagnose"
) -> tuple[int, dict[str, Any]]:
    line = [command, str(model), "--inputs", str(folder / "x"), "--candidate", candidate, "--study", str(folder / "s")]
    status = exit_status(*line, "--quiet", "--format", "json", *words)
    document = read_study(folder / "s")
    return status, document


def _layers(folder: Path) -> Path:
    for number in range(2):
        write_npz(folder / "x" / f"{number}.npz", {"x": _RNG.normal(size=(4, 32)).astype(np.float32)})
    return write_network(folder / "m.onnx", _LAYERS, _WEIGHTS)


def _picture(folder: Path) -> Path:
    for number in range(2):
        write_npz(folder / "x" / f"{number}.npz", {"x": _RNG.normal(size=(1, 3, 16, 16)).astype(np.float32)})
    return write_network(folder / "m.onnx", _PICTURE, _PICTURE_WEIGHTS)


@pytest.mark.parametrize("make", [_layers, _picture])
@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_another_optimizer_level_is_within(level: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    status, document = _diagnosed(tmp_path, make(tmp_path), f"ort?optimization={level}", command="compare")
    assert status == 0, document["outputs"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_graph_that_was_exported_again_is_within_and_one_that_lost_its_bias_is_not(
    *, lost: bool, tmp_path: Path
) -> None:
    held = _PICTURE_WEIGHTS
    factor = held["scale"] / np.sqrt(held["spread"] + np.float32(0.001))
    bias = held["shift"] - held["mean"] * factor
    folded = {
        "folded": held["k"] * factor[:, None, None, None],
        "bias": np.zeros_like(bias) if lost else bias,
        "turned": np.ascontiguousarray(held["w"].T),
        "b": held["b"],
    }
    again = write_network(tmp_path / "again.onnx", _WRITTEN_AGAIN, folded)
    status, document = _diagnosed(tmp_path, _picture(tmp_path), f"ort?model={again}")
    causes = [one for one in document["findings"] if one["role"] == "cause"]
    assert (status, bool(causes)) == ((1, True) if lost else (0, False))


@pytest.mark.story
def test_more_training_is_told_as_another_version_and_no_layer_is_blamed(tmp_path: Path) -> None:
    path = _layers(tmp_path)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        moved = array * _RNG.normal(1, 2e-3, array.shape)
        tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
    onnx.save(model, tmp_path / "trained.onnx")
    status, document = _diagnosed(tmp_path, path, f"ort?model={tmp_path / 'trained.onnx'}")
    assert status == 1
    causes = [one for one in document["findings"] if one["role"] == "cause"]
    assert [(one["code"], one["title"]) for one in causes] == [
        ("EXP005", "The candidate is another version of the model")
    ]


# A variance as exporters write it, E[x^2] - E[x]^2: where the mean is large beside the spread, the order of the sums shows.
_SPREAD = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,512,24] x) => (float[1,24] y) {
  s = ReduceSum<keepdims = 0>(x, rows)
  q = Mul(x, x)
  t = ReduceSum<keepdims = 0>(q, rows)
  m = Mul(s, part)
  mm = Mul(m, m)
  e = Mul(t, part)
  v = Sub(e, mm)
  y = Sqrt(v)
}"""


def _summed_in_pairs(x: np.ndarray) -> np.ndarray:
    """The same in FP32, each sum along the last axis: numpy adds in pairs, as a GPU does, where ONNX Runtime adds row to row."""
    rows = np.ascontiguousarray(x.transpose(0, 2, 1))
    part = np.float32(1 / 512)
    mean = rows.sum(-1) * part
    spread: np.ndarray = np.sqrt((rows * rows).sum(-1) * part - mean * mean)
    return spread


@pytest.mark.parametrize(("off", "sizes"), [(None, 0.0), (4, 2e-2), (6, 3e-4)])
def test_a_sample_that_carries_noise_further_is_judged_by_its_own_floor(
    off: int | None, sizes: float, tmp_path: Path
) -> None:
    model = write_network(tmp_path / "m.onnx", _SPREAD, {"rows": np.array([1]), "part": np.array(1 / 512, np.float32)})
    for number in range(8):
        x = _RNG.normal(30.0 if number == 4 else 0.1, 1, (1, 512, 24)).astype(np.float32)
        y = _summed_in_pairs(x)
        if number == off:
            y = y * (1 + sizes * _RNG.normal(size=y.shape)).astype(np.float32)
        write_npz(tmp_path / "x" / f"{number}.npz", {"x": x})
        write_npz(tmp_path / "y" / f"{number}.npz", {"y": y})
    status, document = _diagnosed(tmp_path, model, f"saved:f32?path={tmp_path / 'y'}", command="compare")
    assert (status, document["verdict"]) == ((0, "within") if off is None else (1, "beyond")), document["outputs"]


_SURE = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,2] y) {
  a = MatMul(x, w)
  y = Softmax<axis = 1>(a)
}"""


def _rounded_to_tf32(array: np.ndarray) -> np.ndarray:
    """To nearest, ten bits of the significand kept; float64."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("wrong", [False, True])
def test_first_samples_that_are_sure_of_their_class_say_nothing_of_others(*, wrong: bool, tmp_path: Path) -> None:
    weights = _RNG.normal(size=(64, 2)).astype(np.float32)
    apart = (weights[:, 0] - weights[:, 1]).astype(np.float64)
    for number in range(8):
        around = _RNG.normal(0, 8, 64)
        lead = 40.0 if number < 4 else 0.5  # how far the first class leads before the Softmax
        x = (around + (lead - around @ apart) / (apart @ apart) * apart).astype(np.float32)[None]
        a = _rounded_to_tf32(x) @ _rounded_to_tf32(weights)
        if wrong and number >= 4:
            a = a * 1.5
        y = np.exp(a - a.max()) / np.exp(a - a.max()).sum()
        write_npz(tmp_path / "x" / f"{number}.npz", {"x": x})
        write_npz(tmp_path / "y" / f"{number}.npz", {"y": y.astype(np.float32)})
    model = write_network(tmp_path / "m.onnx", _SURE, {"w": weights})
    status, document = _diagnosed(tmp_path, model, f"saved:tf32?path={tmp_path / 'y'}", command="compare")
    found = document["outputs"][0]
    assert found["rel_l2"] > 2.0**-11  # so large that the first sample asked is to settle it
    assert (status, document["verdict"]) == ((1, "beyond") if wrong else (0, "within")), found
