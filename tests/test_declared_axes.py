"""Outputs that are given with other axes of one than the model declares are compared, and that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import in_this_process, read_study
from parityscope.backends.declared_axes import place_axes
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

DRAW = np.random.default_rng(5)
CONSTANTS = {
    "w": DRAW.normal(size=(16, 10)).astype(np.float32),
    "v": DRAW.normal(size=10).astype(np.float32),
    "axes": np.array([0], np.int64),
}
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,16] x) => (float[N,10] y, float s) {
  m = MatMul(x, w)
  y = Relu(m)
  p = Mul(y, v)
  s = ReduceSum<keepdims = 0>(p)
}"""
SQUEEZED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x) => (float[10] y, float s) {
  m = MatMul(x, w)
  r = Relu(m)
  y = Squeeze(r, axes)
  p = Mul(y, v)
  s = ReduceSum<keepdims = 0>(p)
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A network with a row and a number as outputs, samples of one row, and what a program kept of them that drops axes."""
    model = write_network(tmp_path / "model.onnx", NETWORK, CONSTANTS)
    session = onnxruntime.InferenceSession(model)
    for name in ("inputs", "right", "doubled"):
        (tmp_path / name).mkdir()
    for number in range(3):
        x = DRAW.normal(size=(1, 16)).astype(np.float32)
        y, s = session.run(["y", "s"], {"x": x})
        np.savez(tmp_path / "inputs" / f"{number}.npz", x=x)
        np.savez(tmp_path / "right" / f"{number}.npz", y=y[0], s=s.reshape(1))
        np.savez(tmp_path / "doubled" / f"{number}.npz", y=2 * y[0], s=2 * s.reshape(1))
    return tmp_path


def test_what_a_program_kept_without_axes_is_right(folder: Path) -> None:
    done = in_this_process(
        "diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "right", "--study", "study", folder=folder
    )
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "y is [10] there and [1, 10] in the model (likewise s): compared in the model's shape" in told
    assert not [skip for skip in read_study(folder / "study")["skipped"] if skip["asked"]]


def test_what_is_wrong_is_told_of_numbers_without_axes_too(folder: Path) -> None:
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "doubled", "--study", "study")
    assert in_this_process(*words, folder=folder).returncode == 1
    study = read_study(folder / "study")
    assert {one["name"]: one["verdict"] for one in study["outputs"]} == {"y": "beyond", "s": "beyond"}
    (cause,) = [one for one in study["findings"] if one["role"] == "cause"]
    assert "scaled by 2" in cause["claim"]


def test_a_file_that_squeezes_an_output_is_right(folder: Path) -> None:
    write_network(folder / "squeezed.onnx", SQUEEZED, CONSTANTS)
    done = in_this_process("compare", "model.onnx", "--inputs", "inputs", "--candidate", "squeezed.onnx", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "y is [10] there and [1, 10] in the model: compared in the model's shape" in " ".join(done.stdout.split())


@given(shape=st.lists(st.integers(1, 5), max_size=6), data=st.data())
def test_axes_of_one_are_found_again(shape: list[int], data: st.DataObject) -> None:
    kept = [size for size in shape if size != 1 or data.draw(st.booleans())]
    for _ in range(data.draw(st.integers(0, 2))):
        kept.insert(data.draw(st.integers(0, len(kept))), 1)
    assert place_axes(shape, tuple(kept)) == tuple(shape)
    assert place_axes(shape, (*kept, 7)) is None
