"""trtexec's `--saveAllDebugTensors`: files as its DebugTensorWriter (samples/common/debugTensorWriter.cpp) leaves them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.debug_tensors import SUMMARY, debug_files
from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.trtexec import Expected, file_name, open_raw
from parityscope.errors import ParityError
from parityscope.records import ValueInfo

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int64": "INT64", "bool": "BOOL"}
Y = (ValueInfo(name="y", dtype="float32", shape=(2,)),)


class Writer:
    """What the C++ class of that name does, call by call."""

    def __init__(self, folder: Path, *formats: str) -> None:
        self.folder, self.formats, self.tensors = folder, formats, list[dict[str, Any]]()
        self.index = 0

    def process(self, name: str, array: np.ndarray) -> None:
        prefix, files = f"{self.index:04d}_", {}
        if "raw" in self.formats:
            files["raw"] = file_name(f"{prefix}{name}.raw")
            array.tofile(self.folder / files["raw"])
        if "numpy" in self.formats:
            converted = array.dtype.name == "bfloat16"
            files["numpy"] = file_name(f"{prefix}{name}{'_to_float' * converted}.npy")
            held = array.astype(np.float32) if converted else array
            shape = "".join(f"{size}, " for size in held.shape)
            text = f"{{'descr': '{held.dtype.str}', 'fortran_order': False, 'shape': ({shape}), }}"
            text += " " * (16 - (11 + len(text)) % 16) + "\n"
            head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
            (self.folder / files["numpy"]).write_bytes(head + held.tobytes())
        self.index += 1
        kind = TYPES.get(array.dtype.name, "INT4")
        self.tensors.append({"name": name, "shape": list(array.shape), "type": kind, "statistics": {}, "files": files})

    def close(self) -> None:
        held = {"metadata": {"title": "Tensor Summary Report"}, "tensors": self.tensors}
        (self.folder / SUMMARY).write_text(json.dumps(held), encoding="utf-8")


ARRAYS: dict[str, np.ndarray] = {
    "/a/Conv_output_0": np.arange(6, dtype=np.float32).reshape(1, 2, 3),
    "half": np.array([1.5, -2], np.float16),
    "b": np.array([[0.25]], ml_dtypes.bfloat16),
    "ids": np.array(7, np.int64),
    "mask": np.array([True, False]),
    "long/" * 40: np.ones(1, np.float32),
}


def read(folder: Path) -> dict[str, np.ndarray]:
    np.array([3, 4], np.float32).tofile(folder / "y.output.2.fp32.raw")
    stored = open_raw(folder, Expected(values=Y, kind="output", shapes={}, inside=frozenset(ARRAYS)))
    names = stored.names(0)
    assert names[0] == "y"
    return stored.read(0, names)


@pytest.mark.parametrize("formats", [("raw",), ("numpy",), ("numpy", "raw")], ids="-".join)
def test_with_a_summary(tmp_path: Path, formats: tuple[str, ...]) -> None:
    writer = Writer(tmp_path, *formats)
    for name, array in ARRAYS.items():
        writer.process(name, array)
    writer.close()
    found = read(tmp_path)
    assert found.pop("y").tolist() == [3, 4]
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        wanted = array.astype(np.float32) if "numpy" in formats and name == "b" else array
        np.testing.assert_array_equal(found[name], wanted, strict=True)


def test_without_a_summary_files_belong_to_the_names_that_make_theirs(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "numpy")
    for name, array in ARRAYS.items():
        writer.process(name, array)
    writer.process("engine/own_myl0", np.zeros(1, np.float32))
    assert list(read(tmp_path)) == ["y", *ARRAYS, "engine_own_myl0"]


def test_of_two_names_that_make_one_file_name_neither_is_taken(tmp_path: Path) -> None:
    Writer(tmp_path, "numpy").process("a/b", np.zeros(1, np.float32))
    (one,) = debug_files(tmp_path, {"a/b", "a:b"}, file_name)
    assert one.name == "a_b"


def test_the_last_inference_counts_and_loops_keep_every_turn(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "numpy")
    for inference in range(3):
        for name in ("a", "h", "h", "h", "z"):
            writer.process(name, np.full(1, inference, np.float32))
    writer.close()
    found = debug_files(tmp_path, (), file_name)
    assert [each.name for each in found] == ["a", "h", "h#1", "h#2", "z"]
    assert [each.path.name[:4] for each in found] == ["0010", "0011", "0012", "0013", "0014"]


def test_a_recording_with_tensors_inside(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { h = Relu(x) y = Neg(h) }'
    path, folder = tmp_path / "m.onnx", tmp_path / "dump"
    onnx.save(parser.parse_model(text), path)
    folder.mkdir()
    writer = Writer(folder, "numpy")
    writer.process("h", np.array([1, 0], np.float32))
    writer.close()
    np.array([-1, 0], np.float32).tofile(folder / "y.output.2.fp32.raw")
    target = parse_target(f"saved?path={folder}")
    with open_target(load_model(path), target, Capture(tensors=("h",))) as session:
        found = session.run(Sample(index=0, name="0", arrays={}))
    assert {name: array.tolist() for name, array in found.items()} == {"y": [-1, 0], "h": [1, 0]}


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ("{", "no whole JSON"),
        ("[]", "cannot be read"),
        ('{"tensors": [{"name": "a", "statistics": {}}]}', "tells ranges of 1 tensors and no file"),
        ('{"tensors": [{"name": "a", "files": {"numpy": "0000_a.npy"}}]}', "0000_a.npy, which is not there"),
    ],
)
def test_summaries_that_lead_nowhere(tmp_path: Path, summary: str, said: str) -> None:
    (tmp_path / SUMMARY).write_text(summary, encoding="utf-8")
    with pytest.raises(ParityError, match=said) as caught:
        debug_files(tmp_path, (), file_name)
    assert caught.value.fix


def test_raw_bytes_alone_have_no_shape(tmp_path: Path) -> None:
    Writer(tmp_path, "raw").process("a", np.zeros(2, np.float32))
    with pytest.raises(ParityError, match=r"0000_a\.raw has no shape") as caught:
        read(tmp_path)
    assert "summary,raw" in caught.value.fix


def test_debug_tensors_alone_are_no_recording(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "numpy")
    writer.process("a", np.zeros(2, np.float32))
    writer.close()
    with pytest.raises(ParityError, match="debug tensors and no outputs") as caught:
        survey_folder(tmp_path)
    assert "--dumpRawBindingsToFile" in caught.value.fix


def test_a_damaged_array_is_one_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "numpy")
    writer.process("a", np.zeros(9, np.float32))
    writer.close()
    path = tmp_path / "0000_a.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ParityError, match=r"0000_a\.npy cannot be read"):
        read(tmp_path)


def test_raw_int4_is_two_elements_to_a_byte(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "raw")
    writer.process("h", np.array([0xE1, 0x04], np.uint8))
    writer.tensors[0].update(shape=[3], type="INT4")
    writer.close()
    assert read(tmp_path)["h"].astype(np.int8).tolist() == [1, -2, 4]
