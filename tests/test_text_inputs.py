"""Models that read text: no number format touches it, and nothing crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from command_line import exit_status
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (string[2] t, float[2] x) => (string[2] same, float[2] y) {
  same = Identity(t)
  y = Mul(x, x)
}"""
ARRAYS = {"t": np.array(["one", "two"]), "x": np.array([1.5, 300.0], np.float32)}


def written(folder: Path) -> Path:
    path = folder / "text.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    np.savez(folder / "text.npz", t=ARRAYS["t"], x=ARRAYS["x"])
    return path


def test_text_goes_through_beside_numbers(tmp_path: Path) -> None:
    found = open_session(load_model(written(tmp_path)).graph(), outputs=["same", "y"])(ARRAYS)
    assert list(found["same"]) == ["one", "two"]
    np.testing.assert_array_equal(found["y"], np.asarray([2.25, 90000.0], np.float32))


def test_the_numbers_are_predicted_and_the_text_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    words = ["predict", str(path), "--inputs", str(tmp_path / "text.npz"), "--formats", "f16", "--quiet"]
    assert exit_status(*words) == 1  # 300 squared is beyond FP16
    assert "'y' is lost" in capsys.readouterr().out
