"""Inputs and outputs of other names, orders of axes or axes of one than the model declares are compared, and that is told."""

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


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return dict(held)


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


PICTURE = {"w": DRAW.normal(size=(4, 3, 3, 3)).astype(np.float32), "half": np.float32([0.5])}
CHANNELS_LAST = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8,9,3] picture) => (float[N,4,6,7] y) {
  x = Transpose<perm = [0, 3, 1, 2]>(picture)
  c = Conv(x, w)
  s = Mul(c, half)
  y = Relu(s)
}"""
CHANNELS_FIRST = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,9] image) => (float[N,4,6,7] y) {
  picture = Conv(image, w)
  s = Mul(picture, half)
  y = Relu(s)
}"""
TWO = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] a, float[N,4] b) => (float[N,4] y) { y = Sub(a, b) }"""


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A network of pictures with their channels last, and its file with them first; samples in both layouts."""
    write_network(tmp_path / "model.onnx", CHANNELS_LAST, PICTURE)
    write_network(tmp_path / "first.onnx", CHANNELS_FIRST, PICTURE)
    write_network(tmp_path / "wrong.onnx", CHANNELS_FIRST, PICTURE | {"half": np.float32([0.25])})
    for name in ("inputs", "theirs"):
        (tmp_path / name).mkdir()
    for number in range(3):
        x = DRAW.normal(size=(1, 8, 9, 3)).astype(np.float32)
        np.savez(tmp_path / "inputs" / f"{number}.npz", picture=x)
        np.savez(tmp_path / "theirs" / f"{number}.npz", image=x.transpose(0, 3, 1, 2))
    return tmp_path


def test_a_file_with_another_input_in_another_layout_is_compared(pictures: Path) -> None:
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "first.onnx")
    for more in ((), ("--candidate-inputs", "theirs"), ("--map", "picture=image")):
        done = in_this_process(*words, *more, "--study", f"study{len(more)}{more[:1]}", folder=pictures)
        assert done.returncode == 0, done.stderr + done.stdout
        told = " ".join(done.stdout.split())
        assert "'picture' is transposed for the candidate's file, whose 'image' has the axes 0, 3, 1, 2" in told


def test_what_is_wrong_is_found_in_a_file_in_another_layout(pictures: Path) -> None:
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "wrong.onnx", "--study", "study")
    assert in_this_process(*words, folder=pictures).returncode == 1
    (cause,) = [one for one in read_study(pictures / "study")["findings"] if one["role"] == "cause"]
    assert "0.25" in cause["claim"]


def test_inputs_that_types_and_shapes_do_not_tell_apart_are_named(tmp_path: Path) -> None:
    write_network(tmp_path / "model.onnx", TWO, {})
    other = TWO.replace("] a", "] q").replace("] b", "] p").replace("(a, b)", "(q, p)")
    write_network(tmp_path / "other.onnx", other, {})
    rows = {name: DRAW.normal(size=(1, 4)).astype(np.float32) for name in "ab"}
    np.savez(tmp_path / "rows.npz", **rows)
    words = ("compare", "model.onnx", "--inputs", "rows.npz", "--candidate", "other.onnx")
    done = in_this_process(*words, folder=tmp_path)
    assert done.returncode == 2
    assert "--map a=q --map b=p" in " ".join(done.stderr.split())
    assert in_this_process(*words, "--map", "a=q", "--map", "b=p", folder=tmp_path).returncode == 0
    assert in_this_process(*words, "--map", "a=p", "--map", "b=q", folder=tmp_path).returncode == 1


def test_samples_and_outputs_may_be_npy(folder: Path) -> None:
    for name in ("rows", "kept/y", "kept/s"):
        (folder / name).mkdir(parents=True)
    for number in range(3):
        np.save(folder / "rows" / f"{number}.npy", read_arrays(folder / "inputs" / f"{number}.npz")["x"])
        for name in ("y", "s"):
            np.save(folder / "kept" / name / f"{number}.npy", read_arrays(folder / "right" / f"{number}.npz")[name])
    done = in_this_process("compare", "model.onnx", "--inputs", "rows", "--candidate", "kept", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "kept" / "s" / "1.npy").unlink()
    done = in_this_process("compare", "model.onnx", "--inputs", "rows", "--candidate", "kept", folder=folder)
    assert done.returncode == 2
    assert "there is no s/1.npy" in done.stderr


@pytest.mark.parametrize(("kept", "status"), [("right", 0), ("doubled", 1)])
def test_the_rounding_of_what_was_stored_is_no_error(folder: Path, kept: str, status: int) -> None:
    (folder / "rounded").mkdir()
    for number in range(3):
        found = read_arrays(folder / kept / f"{number}.npz")
        np.savez(
            folder / "rounded" / f"{number}.npz",
            y=found["y"].astype(np.float16)[None],
            s=found["s"].astype(np.float16).reshape(()),
        )
    words = ("diagnose", "model.onnx", "--inputs", "inputs", "--candidate", "rounded", "--study", "study")
    done = in_this_process(*words, folder=folder)
    assert done.returncode == status, done.stdout
    told = " ".join(done.stdout.split())
    assert "y is kept as float16 there and is float32 in the model (likewise s)" in told
    causes = [one for one in read_study(folder / "study")["findings"] if one["role"] == "cause"]
    assert all("2" in one["claim"] and "float16" not in one["claim"] for one in causes)
