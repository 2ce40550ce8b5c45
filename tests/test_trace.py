"""The safetensors layout written here is the package's, and what is broken is said to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from parityscope.errors import ParityError
from parityscope.trace import TensorFile, read_safetensors, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
ML = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


def several() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    arrays = {dtype: rng.integers(0, 2, (3, 5)).astype(dtype) for dtype in PLAIN}
    strided = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1]
    return {**arrays, "scalar": np.array(1.5, np.float32), "empty": np.zeros((0, 4), np.int64), "strided": strided}


def test_the_package_reads_what_is_written_here(tmp_path: Path) -> None:
    arrays = several()
    write_safetensors(tmp_path / "a.safetensors", arrays)
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_what_the_package_writes_is_read_here(tmp_path: Path) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in several().items() if name != "scalar"}
    save_file(arrays, tmp_path / "a.safetensors", metadata={"made": "elsewhere"})
    found = read_safetensors(tmp_path / "a.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].load(), array, strict=True)
        assert found[name].nbytes == array.nbytes


@pytest.mark.parametrize("dtype", list(ML))
def test_types_that_numpy_lacks(tmp_path: Path, dtype: str) -> None:
    array = np.array([0.5, -2.0, 24.0, np.nan], np.float32).astype(getattr(ml_dtypes, dtype)).reshape(2, 2)
    path = tmp_path / "a.safetensors"
    found = write_safetensors(path, {"t": array})["t"]
    assert (found.dtype, found.shape) == (dtype, (2, 2))
    assert found.load().tobytes() == array.tobytes()
    with safe_open(path, "numpy") as file:
        assert file.get_slice("t").get_dtype() == ML[dtype]
        assert file.get_slice("t").get_shape() == [2, 2]


@given(
    array=hnp.arrays(
        st.sampled_from(["float32", "int64", "bool", "float16"]), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
    ),
    name=st.text(min_size=1).filter(lambda text: text != "__metadata__"),
)
def test_any_name_and_shape_comes_back(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / "law.safetensors"
    found = write_safetensors(path, {name: array, "__behind__" + name: array})
    for held in found.values():
        assert held.load().tobytes() == array.tobytes()
        assert held.load().shape == array.shape
    # Elements start where every type is aligned.
    assert found[name].offset % 64 == 0


def test_nothing_is_left_of_a_file_whose_writing_failed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(RuntimeError), TensorFile(path, {"t": ("float32", (2,)), "u": ("float32", (2,))}) as file:
        file.write("t", np.ones(2, np.float32))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with TensorFile(path, {"t": ("float32", (2,)), "u": ("float32", (2,))}) as file:
        file.write("t", np.ones(2, np.float32))
    assert list(tmp_path.iterdir()) == [], "an incomplete file appeared"


@pytest.mark.parametrize("wrong", [np.ones(3, np.float32), np.ones(2, np.float64)])
def test_only_what_was_announced_is_written(tmp_path: Path, wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="announced"), TensorFile(tmp_path / "a", {"t": ("float32", (2,))}) as file:
        file.write("t", wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_dtype_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="'t' has dtype"):
        write_safetensors(tmp_path / "a", {"t": np.array(["text"])})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 3, 8, 40, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"t": np.ones((4, 4), np.float32)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ParityError, match="not a complete safetensors file") as raised:
        read_safetensors(path)
    assert raised.value.fix
    assert raised.value.where == str(path)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[1]",
        json.dumps({"t": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}}).encode(),
        json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [-64, 4]}}).encode(),
        json.dumps({"t": {"shape": [1]}}).encode(),
    ],
)
def test_a_strange_header_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ParityError, match=r"a complete safetensors file|no whole JSON"):
        read_safetensors(path)
