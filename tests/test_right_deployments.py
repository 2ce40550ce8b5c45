"""Another optimizer level is within; another version of the model is told as one, and no layer is blamed for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

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


def _diagnosed(
    folder: Path, model: Path, candidate: str, *words: str, command: str = "diagnose"
) -> tuple[int, dict[str, Any]]:
    line = [command, str(model), "--inputs", str(folder / "x"), "--candidate", candidate, "--study", str(folder / "s")]
    status = exit_status(*line, "--quiet", "--format", "json", *words)
    document: dict[str, Any] = json.loads((folder / "s" / "study.json").read_text("utf-8"))
    return status, document


def _layers(folder: Path) -> Path:
    for number in range(2):
        write_npz(folder / "x" / f"{number}.npz", {"x": _RNG.normal(size=(4, 32)).astype(np.float32)})
    return write_network(folder / "m.onnx", _LAYERS, _WEIGHTS)


@pytest.mark.parametrize("level", ["disabled", "basic", "extended"])
def test_another_optimizer_level_is_within(level: str, tmp_path: Path) -> None:
    status, document = _diagnosed(tmp_path, _layers(tmp_path), f"ort?optimization={level}", command="compare")
    assert status == 0, document["outputs"]


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
