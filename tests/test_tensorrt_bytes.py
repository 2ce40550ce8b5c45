"""Bytes of every type that TensorRT has, and tensors that an engine shows while it runs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from onnx import numpy_helper

from parityscope.backends.tensorrt.decoding import POISON, decode_tensor, is_unwritten, nbytes_of
from parityscope.backends.tensorrt.listening import Heard
from parityscope.backends.tensorrt.memory import pointer_of
from parityscope.backends.tensorrt.running import write_summary
from parityscope.errors import ParityError
from parityscope.trace import write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")


# --- bytes ---------------------------------------------------------------------------------------------------------------

TYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int8", "int32", "int64", "uint8", "bool")


@given(st.data(), st.sampled_from(TYPES))
def test_bytes_are_read_as_they_were_written(data: st.DataObject, dtype: str) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3).map(tuple))
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    raw = data.draw(arrays(np.uint8, math.prod(shape) * kind.itemsize))
    if dtype == "bool":
        raw &= 1
    assert nbytes_of(dtype, shape) == raw.nbytes
    found = decode_tensor(raw, dtype, shape)
    assert (found.dtype, found.shape) == (kind, shape)
    assert found.tobytes() == raw.tobytes()


def test_four_bits_are_packed_as_onnx_packs_them() -> None:
    # The standard's own packing; an odd number of elements leaves half a byte unused.
    numbers = np.array([-8, 7, 0, -1, 3], np.int8)
    packed = onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [5], numbers).raw_data or bytes(
        numpy_helper.from_array(numbers.astype(ml_dtypes.int4), "w").raw_data
    )
    raw = np.frombuffer(packed, np.uint8)
    assert nbytes_of("int4", (5,)) == raw.nbytes == 3
    assert decode_tensor(raw, "int4", (5,)).astype(np.int8).tolist() == numbers.tolist()
    floats = np.array([0.5, -6.0, 1.5, 0.0], ml_dtypes.float4_e2m1fn)
    raw = np.frombuffer(numpy_helper.from_array(floats, "w").raw_data, np.uint8)
    assert raw.nbytes == 2
    assert decode_tensor(raw, "float4_e2m1fn", (2, 2)).astype(np.float32).tolist() == [[0.5, -6.0], [1.5, 0.0]]


def test_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ParityError, match="7 of 8 bytes"):
        decode_tensor(np.zeros(7, np.uint8), "float32", (2,))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int64"])
def test_memory_that_was_not_written_is_seen(dtype: str) -> None:
    held = np.full(nbytes_of(dtype, (4,)), POISON, np.uint8)
    assert is_unwritten(held)
    array = decode_tensor(held, dtype, (4,)).astype(np.float64)
    assert np.isnan(array).all() if dtype != "int64" else (array == -1).all()
    held[0] = 0
    assert not is_unwritten(held)
    assert not is_unwritten(np.zeros(0, np.uint8))


def test_addresses_are_numbers_or_capsules() -> None:
    import ctypes

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    assert pointer_of(4096) == 4096
    assert pointer_of(capsule(4096, b"nothing", None)) == 4096
    assert pointer_of(capsule(8192, None, None)) == 8192


# --- what is shown while an engine runs --------------------------------------------------------------------------------------


def heard(folder: Path, budget: int = 1 << 20, *, only: bool = False) -> Heard:
    return Heard(names={"e1": "a", "e2": "b"}, budget=budget, folder=folder, keeps=not only, summarizes=True)


def test_every_occurrence_of_a_loop_is_kept(tmp_path: Path) -> None:
    kept = heard(tmp_path)
    for step in range(3):
        array = np.full((2,), step, np.float16)
        kept.take("e1", "float16", (2,), array.view(np.uint8))
        array[:] = -1  # TensorRT writes over it
    assert {name: array.tolist() for name, array in kept.arrays.items()} == {"a": [0, 0], "a#1": [1, 1], "a#2": [2, 2]}
    summary = kept.summaries["a"]
    assert (summary.occurrences, summary.count, summary.smallest, summary.largest, summary.mean) == (3, 6, 0, 2, 1)
    assert kept.wants("e2")
    assert not kept.wants("e9")
    assert kept.unknown == {"e9"}
    kept.clear()
    assert not kept.arrays
    # The next run counts turns from the start; the summary goes on.
    kept.take("e1", "float16", (1,), np.array([5], np.float16).view(np.uint8))
    assert list(kept.arrays) == ["a"]
    assert (kept.summaries["a"].occurrences, kept.summaries["a"].largest) == (4, 5)


def test_what_exceeds_the_budget_is_mapped_and_equal(tmp_path: Path) -> None:
    kept = heard(tmp_path, budget=40)
    first, second = np.arange(10, dtype=np.float32), np.arange(10, 20, dtype=np.float32)
    kept.take("e1", "float32", (10,), first.view(np.uint8))
    kept.take("e2", "float32", (2, 5), second.view(np.uint8))
    assert not isinstance(kept.arrays["a"], np.memmap)
    assert isinstance(kept.arrays["b"], np.memmap)
    assert np.array_equal(kept.arrays["b"], second.reshape(2, 5))
    assert list(tmp_path.iterdir()) == []  # the map keeps the file


def test_summaries_alone_keep_nothing(tmp_path: Path) -> None:
    kept = heard(tmp_path, only=True)
    kept.take("e1", "bfloat16", (3,), np.array([1, np.nan, np.inf], ml_dtypes.bfloat16).view(np.uint8))
    kept.take("e1", "bfloat16", (2,), np.array([3, -np.inf], ml_dtypes.bfloat16).view(np.uint8))
    assert kept.arrays == {}
    found = kept.summaries["a"]
    assert (found.count, found.nan, found.inf, found.smallest, found.largest, found.mean) == (5, 1, 2, 1, 3, 2)
    empty = heard(tmp_path, only=True)
    empty.take("e1", "float32", (0,), np.zeros(0, np.uint8))
    assert math.isnan(empty.summaries["a"].mean)
    write_summary(tmp_path / "ranges.json", {**kept.summaries, "empty": empty.summaries["a"]}, engine="model.plan")
    first, last = json.loads((tmp_path / "ranges.json").read_text(encoding="utf-8"))["tensors"]
    assert (first["name"], first["type"], first["shape"]) == ("a", "bfloat16", [2])
    assert first["statistics"] == {"min": 1, "max": 3, "avg": 2, "elements": 5, "nan": 1, "inf": 2, "occurrences": 2}
    assert last["statistics"]["avg"] == "NaN"


def test_a_tensor_of_other_sizes_is_another_tensor(tmp_path: Path) -> None:
    kept = heard(tmp_path)
    kept.shapes = {"a": (2, 3, 4), "b": (2, 3)}
    kept.take("e1", "float32", (6, 4), np.arange(24, dtype=np.float32).view(np.uint8))
    kept.take("e2", "float32", (2, 9), np.zeros(18, np.float32).view(np.uint8))
    assert list(kept.arrays) == ["a"]
    assert np.array_equal(kept.arrays["a"], np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    assert kept.unknown == {"e2"}


def test_types_that_no_file_has_are_kept_in_one_that_holds_them(tmp_path: Path) -> None:
    kept = Heard(names={"w": "w", "f": "f", "e": "e"}, budget=1 << 20, folder=tmp_path)
    kept.take("w", "int4", (2,), np.array([0x7F], np.uint8))  # -1 in the low half, 7 in the high one
    kept.take("f", "float4_e2m1fn", (2,), np.array([0x71], np.uint8))  # 0.5 and 6
    kept.take("e", "float8_e8m0fnu", (2,), np.array([0, 127], np.uint8))  # 2^-127 and 2^0
    assert {name: (array.dtype.name, array.tolist()) for name, array in kept.arrays.items()} == {
        "w": ("int8", [-1, 7]),
        "f": ("float32", [0.5, 6]),
        "e": ("float32", [2.0**-127, 1]),
    }
    written = write_safetensors(tmp_path / "kept.safetensors", kept.arrays)
    assert written["w"].load().tolist() == [-1, 7]
