"""DAT011 from the command: samples that are not what the model's own normalization takes are told, right ones are not blamed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,16] x) => (float[1,4,16,16] y) {
  a = Sub(x, mean)
  b = Div(a, deviation)
  y = Conv(b, w)
}"""
DRAW = np.random.default_rng(41)
CONSTANTS = {
    "mean": np.array([123.7, 116.3, 103.5], np.float32).reshape(1, 3, 1, 1),
    "deviation": np.array([58.4, 57.1, 57.4], np.float32).reshape(1, 3, 1, 1),
    "w": DRAW.normal(size=(4, 3, 1, 1)).astype(np.float32),
}
PIXELS = DRAW.integers(0, 256, (1, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "told"),
    [(PIXELS / np.float32(255), True), (PIXELS * np.float32(255), True), (PIXELS, False)],
    ids=["scaled before", "of another unit", "right"],
)
def test_samples_of_another_range_are_told(tmp_path: Path, samples: np.ndarray, told: bool) -> None:
    model = write_network(tmp_path / "m.onnx", NETWORK, CONSTANTS)
    other = write_network(tmp_path / "c.onnx", NETWORK, {**CONSTANTS, "w": CONSTANTS["w"] * np.float32(1.5)})
    np.savez(tmp_path / "x.npz", x=samples)
    line = [str(model), "--candidate", f"ort?model={other}", "--inputs", str(tmp_path / "x.npz")]
    assert exit_status("diagnose", *line, "--study", str(tmp_path / "s"), "--quiet") == 1
    document = read_study(tmp_path / "s")
    found = [one for one in document["findings"] if one["code"] == "DAT011"]
    assert [one["role"] for one in found] == (["information"] if told else [])
    if told:
        assert "x lies in" in found[0]["sentence"] if "sentence" in found[0] else "x lies in" in json.dumps(found[0])
