"""Environments: what two sides tell of themselves, what one side contradicts, and the run that makes a cause of it."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status
from parityscope.backends.machine import loaded_libraries, machine_facts, needed_libraries, recorded_facts
from parityscope.case.formats.npz import write_npz
from parityscope.environment import MATTERS, facts_of, list_conflicts, list_differences
from parityscope.errors import ParityError
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y) { y = MatMul(x, w) }"""
W = np.random.default_rng(3).normal(size=(64, 64)).astype(np.float32)
X = np.random.default_rng(4).normal(size=(4, 64)).astype(np.float32)


def test_only_what_both_tell_differs() -> None:
    reference = {"onnxruntime": "1.31.1", "driver": "550.1", "recording": "a"}
    candidate = {"onnxruntime": "1.22.0", "gpu": "L4", "recording": "b"}
    (only,) = list_differences(reference, candidate)
    assert (only.key, only.reference, only.candidate) == ("onnxruntime", "1.31.1", "1.22.0")
    assert only.matters == MATTERS["onnxruntime"]
    assert list_differences(reference, reference) == ()


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("tensorrt", "tensorrt 10.13.0.35", "10.13.0.35", True),
        ("tensorrt", "TensorRT 10.13", "10.13.0.35", True),
        ("tensorrt", "tensorrt-rtx 1.7.1.116", "tensorrt_rtx 1.7.1.116", True),
        ("tensorrt", "tensorrt 10.13.0.35", "tensorrt_rtx 10.13.0.35", False),
        ("tensorrt", "tensorrt 10.13", "10.14", False),
        ("tensorrt", "10.1", "10.13", False),
        ("tensorrt", "11", "11.2.0", True),
        ("openvino", "2026.4.1-229", "2026.4.1", True),
        ("torch", "2.4.0+cu121", "2.4.0+cpu", False),
        ("cuda", "none: a CPU build", "12.4", False),
        ("cpu", "one 1.2", "1.2", False),
    ],
)
def test_a_version_is_the_same_however_it_is_told(key: str, one: str, other: str, same: bool) -> None:
    assert (list_differences({key: one}, {key: other}) == ()) is same
    assert (list_differences({key: other}, {key: one}) == ()) is same


def test_a_library_is_loaded_as_it_was_linked_or_it_is_not() -> None:
    assert list_conflicts({"linked libcudnn": "9", "loaded libcudnn": "9.1.0"}) == ()
    assert list_conflicts({"linked libcudnn": "9", "loaded libcudnn": "8.9.7"}) == (
        "libcudnn was linked as version 9 and loaded as 8.9.7",
    )
    # Version 1 is no beginning of version 12.
    assert len(list_conflicts({"linked libcudart": "1", "loaded libcudart": "12.4.127"})) == 1
    assert list_conflicts({"loaded libcublas": "12.4.5, 11.11.3"}) == (
        "libcublas is loaded in 2 versions at once: 11.11.3, 12.4.5",
    )


def test_versions_are_read_from_the_files_that_are_mapped() -> None:
    maps = "\n".join(
        f"7f00-7f01 r-xp 00000000 fd:00 {number} {path}"
        for number, path in enumerate(
            (
                "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0",
                "/opt/old/libcudnn.so.8.9.7",
                "/opt/old/libcudnn.so.8.9.7",
                "/usr/lib/libnvinfer.so.10.3.0",
                "/usr/lib/libc.so.6",
                "/usr/lib/libcudart.so",
            )
        )
    )
    assert loaded_libraries(maps) == {
        "libcudnn": ("9.1.0, 8.9.7", "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0"),
        "libnvinfer": ("10.3.0", "/usr/lib/libnvinfer.so.10.3.0"),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files are Linux's")
def test_what_a_library_was_linked_with_is_read_from_its_file(tmp_path: Path) -> None:
    from pathlib import Path as Place

    from numpy._core import _multiarray_umath

    assert "libc.so.6" in needed_libraries(Place(_multiarray_umath.__file__))
    (tmp_path / "short.so").write_bytes(b"\x7fELF\x02\x01" + b"\0" * 20)
    (tmp_path / "text.so").write_text("no library", encoding="utf-8")
    assert [needed_libraries(tmp_path / name) for name in ("short.so", "text.so", "none.so")] == [(), (), ()]


def test_switches_are_read_as_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert machine_facts()["NVIDIA_TF32_OVERRIDE"] == "0"
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    found = machine_facts()
    assert found["NVIDIA_TF32_OVERRIDE"] == "not set"
    assert found["subnormals"] == "kept"


def test_facts_of_the_documents_that_there_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exit_status("doctor", "--format", "json")
    (tmp_path / "environment.json").write_text(capfd.readouterr().out, encoding="utf-8")
    found = recorded_facts(tmp_path / "environment.json")
    assert found["cpu"] == machine_facts()["cpu"]
    assert "onnxruntime" in found
    study = {"schema": "parityscope/1", "environment": {"cpu": "A"}, "candidate": {"environment": {"openvino": "1"}}}
    assert facts_of(study) == {"cpu": "A", "openvino": "1"}
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ParityError, match="nothing of an environment"):
        recorded_facts(tmp_path / "list.json")


def diagnosed(line: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    return exit_status("diagnose", *line, "--format", "json", "--quiet"), json.loads(capfd.readouterr().out)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_network(tmp_path / "m.onnx", MODEL, {"w": W})
    write_npz(tmp_path / "x.npz", {"x": X})
    return tmp_path / "m.onnx"


def test_a_recording_from_elsewhere_is_no_cause(model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recording").mkdir()
    write_npz(tmp_path / "recording" / "x.npz", {"y": X @ W * np.float32(1.5)})
    there = json.dumps({"cpu": "another processor", "subnormals": "flushed to zero"})
    (tmp_path / "recording" / "environment.json").write_text(there, encoding="utf-8")
    line = [str(model), "--inputs", str(tmp_path / "x.npz"), "--study", str(tmp_path / "study")]
    code, found = diagnosed([*line, "--candidate", f"saved?path={tmp_path / 'recording'}"], capfd)
    assert code == 1
    (told,) = [one for one in found["findings"] if one["code"] == "ENV001"]
    assert told["role"] == "information"
    assert [one["key"] for one in told["details"]["differences"]] == ["cpu", "subnormals"]


PROGRAM = """
import os, sys
from pathlib import Path

import numpy as np

source, sink = map(Path, sys.argv[1:])
W = np.load("WEIGHTS")

def rounded(array):
    # TF32, unless NVIDIA's own variable forbids it: 13 bits of the significand are dropped, to nearest.
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return array
    bits = array.view(np.uint32).astype(np.uint64) + 0xFFF + ((array.view(np.uint32) >> 13) & 1)
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32)

for file in source.glob("*.npz"):
    x = np.load(file)["x"]
    np.savez(sink / file.name, y=rounded(x) @ rounded(W))
"""


def test_one_run_with_the_switch_thrown_makes_the_cause(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "w.npy", W)
    program = tmp_path / "infer.py"
    program.write_text(PROGRAM.replace("WEIGHTS", str(tmp_path / "w.npy")), encoding="utf-8")
    line = [str(model), "--inputs", str(tmp_path / "x.npz"), "--study", str(tmp_path / "study")]
    code, found = diagnosed([*line, "--candidate", f"command?run={sys.executable} {program}"], capfd)
    assert code == 1
    told = [one for one in found["findings"] if one["code"] == "ENV002"]
    assert [one["role"] for one in told] == ["cause"]
    assert told[0]["details"]["switch"] == "NVIDIA_TF32_OVERRIDE=0"


def test_a_library_is_told_from_its_loading_to_its_unloading(tmp_path: Path) -> None:
    path = shutil.copy(_ctypes.__file__, tmp_path / "libcudnn.so.9.1.0")  # any library will do
    before = loaded_libraries()
    loaded = ctypes.CDLL(path)
    told = loaded_libraries()
    _ctypes.dlclose(loaded._handle)
    assert told == {**before, "libcudnn": ("9.1.0", str(path))}
    assert loaded_libraries() == before
