"""Layers that amplify are named as the network's conditioning, in every form of the report, and blamed by nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from command_line import exit_status
from parityscope.report.view import view_study
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# x - 0.999 x keeps a thousandth of x and all of its error: a gain of about a thousand over sqrt(2).
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) {
  a = Exp(x)
  b = Mul(a, c)
  d = Sub(a, b)
  y = Tanh(d)
}"""


def test_a_difference_of_close_numbers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_network(tmp_path / "model.onnx", TEXT, {"c": np.array(0.999, np.float32)})
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32))
    words = ["diagnose", str(tmp_path / "model.onnx"), "--candidate", "sim:f16", "--inputs", str(tmp_path / "x.npz")]
    exit_status(*words, "--study", str(tmp_path / "study"), "--all")
    said = " ".join(capsys.readouterr().out.split())
    assert "(Sub) makes the error that enters it" in said
    assert "this is the network's own conditioning and no cause" in said
    page = (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    assert "conditioning and no cause" in page


def test_noise_and_what_is_not_known_are_not_named() -> None:
    row = {"name": "t", "node": "n", "op_type": "Sub", "gain": 50.0, "inherited": 1e-3, "floor": 1e-7}
    assert len(view_study({"tensors": [row]})["conditioning"]) == 1
    assert not view_study({"tensors": [{**row, "gain": 1.5}]})["conditioning"]
    assert not view_study({"tensors": [{**row, "inherited": 3e-7}]})["conditioning"]  # within four times the floor
    assert not view_study({"tensors": [{**row, "gain": None}]})["conditioning"]
    assert not view_study({"tensors": [{**row, "gain": "Infinity"}]})["conditioning"]
    assert len(view_study({"tensors": [row] * 9})["conditioning"]) == 3
