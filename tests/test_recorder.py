"""The two recorders that other people's programs carry: what they write is what numpy, zipfile and `saved` read."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from parityscope.backends import Capture, backend_named
from parityscope.case import Sample, load_model
from parityscope.records import Target

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "recorder" / "parityscope_recorder.py"
PAGE = ROOT / "docs" / "recorder.md"
COMPILER = next((found for name in ("g++", "clang++", "c++") if (found := shutil.which(name))), "")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
NAMES = ("/block.0/Conv_output_0", "input:0", "file", "arr_0", "self", "a b", "../up", "模型", "é\n\"'\\n")

needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C++ compiler (g++, clang++, c++) on PATH")


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parityscope_recorder", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def names_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


# Python


def test_the_source_is_python_3_6_and_needs_numpy_alone() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported - sys.stdlib_module_names == {"numpy"}


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.zeros((0, 4), np.float32),
        np.array([np.nan, np.inf, -0.0], np.float16),
        np.arange(6, dtype=np.int64).reshape(2, 3).T,
        np.arange(4, dtype=">i4"),
        np.array([True, False]),
        np.array(["ab", "c"]),
        np.arange(8, dtype=np.uint8)[::2],
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_values_come_back_bit_by_bit(recorder: ModuleType, tmp_path: Path, array: np.ndarray) -> None:
    assert recorder.record({"x": array}, {"y": array}, directory=tmp_path) == 0
    for folder, name in (("inputs", "x"), ("outputs", "y")):
        back = read(tmp_path / folder / "000000.npz")[name]
        assert back.dtype == array.dtype.newbyteorder("<")
        assert back.shape == array.shape
        assert back.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_names_of_every_kind_survive(recorder: ModuleType, tmp_path: Path) -> None:
    tensors = {name: np.full(2, index, np.float32) for index, name in enumerate(NAMES)}
    recorder.record(tensors, {"y": np.zeros(1)}, intermediates=tensors, directory=tmp_path)
    for folder in ("inputs", "outputs"):
        back = read(tmp_path / folder / "000000.npz")
        assert {name: back[name].tolist() for name in NAMES} == {name: [i, i] for i, name in enumerate(NAMES)}


def test_samples_are_numbered_on_across_processes_and_threads(recorder: ModuleType, tmp_path: Path) -> None:
    def one(value: int) -> int:
        number: int = recorder.record({"x": np.array(value)}, {"y": np.array(-value)}, directory=tmp_path)
        return number

    program = "import parityscope_recorder as r, numpy as n; print(r.record({'x': n.array(9)}, {'y': n.array(-9)}))"
    assert [one(0), one(1)] == [0, 1]
    (tmp_path / "recording").symlink_to(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(one, range(3, 27)))
    assert sorted(numbers) == list(range(3, 27))
    pairs = [
        (read(tmp_path / "inputs" / f"{n:06d}.npz")["x"], read(tmp_path / "outputs" / f"{n:06d}.npz")["y"])
        for n in range(27)
    ]
    assert all(x == -y for x, y in pairs)
    assert sorted(int(x) for x, _ in pairs) == sorted([0, 1, 9, *range(3, 27)])
    assert not list(tmp_path.glob("*.part"))


def test_the_manifest_says_which_is_which_and_nothing_personal(recorder: ModuleType, tmp_path: Path) -> None:
    recorder.record(
        {"x": np.zeros((1, 2), np.float32)},
        {"y": np.zeros(3, np.int64), "b": np.zeros((), bool)},
        intermediates={"h": np.zeros(2, ml_dtypes.bfloat16)},
        directory=tmp_path,
    )
    assert json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8")) == {
        "schema": "parityscope-recording/1",
        "inputs": ["x"],
        "outputs": ["y", "b"],
        "intermediates": ["h"],
        "first_sample": {
            "inputs": {"x": {"dtype": "float32", "shape": [1, 2]}},
            "outputs": {"y": {"dtype": "int64", "shape": [3]}, "b": {"dtype": "bool", "shape": []}},
            "intermediates": {"h": {"dtype": "float32", "shape": [2]}},
        },
        "widened_to_float32": {"h": "bfloat16"},
        "recorder": {
            "language": "python",
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
        },
    }


def test_every_bfloat16_is_widened_exactly(recorder: ModuleType, tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    recorder.record({"x": np.zeros(1)}, {"y": bits.view(ml_dtypes.bfloat16)}, directory=tmp_path)
    back = read(tmp_path / "outputs" / "000000.npz")["y"]
    assert back.dtype == np.float32
    is_nan = np.isnan(back)
    # A bfloat16 is the upper half of a float32. NaN: 127 patterns of each sign, which a widening may quieten.
    assert np.count_nonzero(is_nan) == 2 * 127
    np.testing.assert_array_equal(back.view(np.uint32)[~is_nan], bits.astype(np.uint32)[~is_nan] << 16)


class Tensor:
    """What the recorder uses of a torch tensor, over an array of ml_dtypes: numpy() refuses what torch refuses."""

    def __init__(self, array: np.ndarray, *, attached: bool = True, device: str = "cuda") -> None:
        self.array, self.attached, self.device = array, attached, device

    @property
    def dtype(self) -> str:
        return f"torch.{self.array.dtype.name}"

    def detach(self) -> Tensor:
        return Tensor(self.array, attached=False, device=self.device)

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32), attached=self.attached, device=self.device)

    def cpu(self) -> Tensor:
        return Tensor(self.array, attached=self.attached, device="cpu")

    def numpy(self) -> np.ndarray:
        if self.attached or self.device != "cpu" or self.array.dtype.kind == "V":
            raise TypeError("can't convert")
        return self.array


def test_tensors_with_gradients_on_a_device_are_taken(recorder: ModuleType, tmp_path: Path) -> None:
    half = Tensor(np.array([1.5, np.nan], ml_dtypes.bfloat16))
    recorder.record({"x": Tensor(np.array([2], np.int32))}, {"y": half}, directory=tmp_path)
    np.testing.assert_array_equal(read(tmp_path / "inputs" / "000000.npz")["x"], np.array([2], np.int32))
    np.testing.assert_array_equal(read(tmp_path / "outputs" / "000000.npz")["y"], np.array([1.5, np.nan], np.float32))
    assert json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["widened_to_float32"] == {
        "y": "bfloat16"
    }


ONE = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("inputs", "outputs", "problem"),
    [
        ({}, {"y": ONE}, "no inputs"),
        ({"x": ONE}, {}, "no outputs"),
        ({"": ONE}, {"y": ONE}, "name"),
        ({"x.npy": ONE}, {"y": ONE}, "name"),
        ({3: ONE}, {"y": ONE}, "name"),
        ({"x": np.array([None])}, {"y": ONE}, "Python objects"),
        ({"x": ONE}, {"y": [[1.0], [1.0, 2.0]]}, "array"),
        ({"x": ONE}, {"y": np.zeros(1, "M8[s]")}, "dtype"),
        ({"x": ONE}, {"y": np.zeros(1, [("a", "f4")])}, "dtype"),
        ({"x": ONE}, {"h": ONE}, "both"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_a_fix(
    recorder: ModuleType, tmp_path: Path, inputs: dict[Any, Any], outputs: dict[Any, Any], problem: str
) -> None:
    with pytest.raises(recorder.RecordingError, match=rf"(?s){problem}.*\n  fix: .+"):
        recorder.record(inputs, outputs, intermediates={"h": ONE}, directory=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [({"z": ONE}, "the recording has"), ({"y": ONE.astype(np.float64)}, "float64"), ({"y": ONE, "z": ONE}, "z")],
)
def test_another_program_does_not_mix_its_samples_in(
    recorder: ModuleType, tmp_path: Path, outputs: dict[str, np.ndarray], problem: str
) -> None:
    recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)
    recorder.record({"x": np.zeros((4, 4), np.float32)}, {"y": ONE}, directory=tmp_path)
    with pytest.raises(recorder.RecordingError, match=rf"(?s){problem}.*another directory"):
        recorder.record({"x": ONE}, outputs, directory=tmp_path)
    assert len(list((tmp_path / "inputs").iterdir())) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1"}', '{"schema": 1, "first_sample": []}'])
def test_a_manifest_of_something_else_is_refused(recorder: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(recorder.RecordingError, match="not the manifest"):
        recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)


def test_a_sample_that_fails_while_it_is_written_leaves_nothing(
    recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)
    before = names_in(tmp_path)
    write = np.lib.format.write_array

    def full_disk(file: Any, array: np.ndarray, *, allow_pickle: bool) -> None:
        write(file, array[:0], allow_pickle=allow_pickle)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(OSError, match="No space"):
        recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)
    assert names_in(tmp_path) == before
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.skipif(
    importlib.util.find_spec("parityscope.backends.saved") is None, reason="the backend `saved` is not installed"
)
def test_saved_reads_what_was_recorded(recorder: ModuleType, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { h = Mul(x, x)  y = Add(h, x) }'
    )
    onnx.save(model, tmp_path / "model.onnx")
    samples = [np.array(values, np.float32) for values in ([1, 2], [3], [-1, 0.5, 4])]
    for x in samples:
        recorder.record({"x": x}, {"y": x * x + x}, intermediates={"h": x * x}, directory=tmp_path / "recording")
    target = Target(backend="saved", options=(("path", str(tmp_path / "recording")),))
    with backend_named("saved").open(load_model(tmp_path / "model.onnx"), target, Capture(tensors=("h",))) as session:
        for index, x in enumerate(samples):
            got = session.run(Sample(index=index, name=f"{index:06d}.npz", arrays={"x": x}))
            np.testing.assert_array_equal(got["y"], x * x + x, strict=True)
            np.testing.assert_array_equal(got["h"], x * x, strict=True)


def test_half_a_sample_of_a_killed_program_stops_the_recording(recorder: ModuleType, tmp_path: Path) -> None:
    for _ in range(2):
        recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)
    (tmp_path / "inputs" / "000001.npz").rename(tmp_path / "lost.npz")  # killed between its two moves
    with pytest.raises(recorder.RecordingError, match=r"(?s)no twin.*fix: delete .*000001\.npz") as raised:
        recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path)
    Path(str(raised.value).partition("fix: delete ")[2]).unlink()
    assert recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path) == 1


def test_the_page_s_python_examples_run(recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "parityscope_recorder", recorder)
    for example in blocks("python"):
        exec(compile(example, str(PAGE), "exec"), {})  # noqa: S102 - the page's own examples
    assert len(list(tmp_path.glob("recording/inputs/*.npz"))) == 3
    layers = read(tmp_path / "recording-with-layers" / "outputs" / "000000.npz")
    assert layers["/block1/Mul_output_0"].tolist() == [[2.0, 2.0, 2.0]]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    return found


# C++

PROGRAM = r"""
#include "parityscope_recorder.hpp"

#include <iostream>

template <class T>
void pair(parityscope::Recorder& recording, const char* name) {
    const T values[2] = {static_cast<T>(1), static_cast<T>(-1)};
    recording.output(name, values, {2, 1});
}

void sample(parityscope::Recorder& recording) {
    float x[6] = {0.0f, -0.5f, 1e-45f, 3e38f, 4.0f, 5.0f};
    recording.input("x", x, {1, 2, 3});
    x[0] = 99.0f; // a buffer that is used again must not change what was recorded
    recording.input("/enc/in:0", x, {2, 0, 3});
    pair<float>(recording, "float32");
    pair<double>(recording, "float64");
    pair<std::int8_t>(recording, "int8");
    pair<std::int16_t>(recording, "int16");
    pair<std::int32_t>(recording, "int32");
    pair<long long>(recording, "int64");
    pair<std::uint8_t>(recording, "uint8");
    pair<std::uint16_t>(recording, "uint16");
    pair<std::uint32_t>(recording, "uint32");
    pair<unsigned long>(recording, "uint64");
    const bool flags[3] = {true, false, true};
    recording.output("file", flags, {3});
    const std::int64_t scalar = std::int64_t{-5000000000};
    recording.output("模型/é\"\n", &scalar, {});
    const std::uint16_t bits[4] = {0x3C00, 0xFBFF, 0x0001, 0xFC00};
    recording.intermediate("half", bits, {4}, parityscope::Type::float16);
    recording.intermediate("brain", bits, {4}, parityscope::Type::bfloat16);
}

void broken(parityscope::Recorder& recording, const std::string& how) {
    const float x = 1.0f;
    const float* const nothing = nullptr;
    recording.input("x", &x, {1});
    if (how == "name") recording.output("", &x, {1});
    if (how == "utf8") recording.output("\xE9t\xE9", &x, {1});
    if (how == "suffix") recording.output("y.npy", &x, {1});
    if (how == "dynamic") recording.output("y", &x, {-1, 1});
    if (how == "rank") recording.output("y", &x, parityscope::Shape(33, 1));
    if (how == "huge") recording.output("y", &x, {1000000000, 1000000000, 1000000000});
    if (how == "null") recording.output("y", nothing, {1});
    if (how == "twice") recording.input("x", &x, {1});
    if (how == "other") recording.output("z", &x, {1});
    if (how == "drop") {
        recording.output("y", &x, {1});
        return;
    }
    recording.commit();
}

int main(int count, char** words) {
    try {
        parityscope::Recorder recording(words[1]);
        if (count == 2) {
            for (int index = 0; index < 2; ++index) {
                sample(recording);
                std::cout << recording.commit() << "\n";
            }
        } else {
            const float y = 2.0f;
            recording.input("x", &y, {1});
            recording.output("y", &y, {1});
            recording.commit();
            broken(recording, words[2]);
        }
    } catch (const std::runtime_error& error) {
        std::cout << error.what() << "\n";
        return 1;
    }
}
"""


def build(directory: Path, source: str, *options: str) -> Path:
    program = directory / "program"
    (directory / "main.cpp").write_text(source, encoding="utf-8")
    subprocess.run(
        [COMPILER, *STRICT, *options, "-I", str(SOURCE.parent), "main.cpp", "-o", str(program)],
        cwd=directory,
        check=True,
        timeout=300,
    )
    return program


def execute(program: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run([str(program), *words], cwd=program.parent, stdout=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stdout.decode(errors="replace")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cpp"), PROGRAM)


def check_cpp_sample(directory: Path, number: int) -> None:
    inputs = read(directory / "inputs" / f"{number:06d}.npz")
    assert list(inputs) == ["x", "/enc/in:0"]
    expected = np.array([[[0.0, -0.5, 1e-45], [3e38, 4.0, 5.0]]], np.float32)
    np.testing.assert_array_equal(inputs["x"], expected, strict=True)
    np.testing.assert_array_equal(inputs["/enc/in:0"], np.zeros((2, 0, 3), np.float32), strict=True)
    outputs = read(directory / "outputs" / f"{number:06d}.npz")
    for name in ("float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))):
        pair = np.array([[1], [-1]]).astype(name)  # an unsigned -1 is the largest value, here as in C++
        np.testing.assert_array_equal(outputs.pop(name), pair, strict=True)
    np.testing.assert_array_equal(outputs.pop("file"), np.array([True, False, True]), strict=True)
    np.testing.assert_array_equal(outputs.pop('模型/é"\n'), np.array(-5_000_000_000), strict=True)
    # binary16: 0x3C00 = 1, 0xFBFF = -65504, 0x0001 = 2^-24, 0xFC00 = -inf
    half = np.array([1.0, -65504.0, 2.0**-24, -np.inf], np.float16)
    np.testing.assert_array_equal(outputs.pop("half"), half, strict=True)
    # bfloat16: 0x3C00 = 2^(120-127), 0xFBFF = -(1+127/128) * 2^(247-127), 0x0001 = 2^-133, 0xFC00 = -2^(248-127)
    brain = np.array([2.0**-7, -255 / 128 * 2.0**120, 2.0**-133, -(2.0**121)], np.float32)
    np.testing.assert_array_equal(outputs.pop("brain"), brain, strict=True)
    assert not outputs


@needs_compiler
def test_the_header_writes_what_numpy_reads(program: Path, tmp_path: Path) -> None:
    assert execute(program, str(tmp_path)) == (0, "0\n1\n")
    assert execute(program, str(tmp_path)) == (0, "2\n3\n")
    for number in range(4):
        check_cpp_sample(tmp_path, number)
    assert len(names_in(tmp_path)) == 2 * 4 + 1
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["schema"] == "parityscope-recording/1"
    assert manifest["inputs"] == ["x", "/enc/in:0"]
    assert manifest["outputs"][-1] == '模型/é"\n'
    assert manifest["intermediates"] == ["half", "brain"]
    assert manifest["first_sample"]["inputs"]["/enc/in:0"] == {"dtype": "float32", "shape": [2, 0, 3]}
    assert manifest["widened_to_float32"] == {"brain": "bfloat16"}


@needs_compiler
def test_zip64_records_are_read(tmp_path: Path) -> None:
    """Every size and offset from 1 on goes into zip64's fields, as those from 4 GiB on do otherwise."""
    wide = build(tmp_path, PROGRAM, "-DPARITYSCOPE_ZIP64_FROM=1")
    assert execute(wide, "out") == (0, "0\n1\n")
    check_cpp_sample(tmp_path / "out", 1)
    with zipfile.ZipFile(tmp_path / "out" / "outputs" / "000001.npz") as archive:
        assert all(info.extra.startswith(b"\x01\x00") for info in archive.infolist())


@needs_compiler
@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("name", "cannot be the name"),
        ("utf8", "cannot be the name"),
        ("suffix", "cannot be the name"),
        ("dynamic", "dimension -1"),
        ("rank", "32 dimensions"),
        ("huge", "too large"),
        ("null", "null pointer"),
        ("twice", "given twice"),
        ("other", "not those of the first"),
        ("nothing", "at least one input and one output"),
    ],
)
def test_the_header_refuses_with_a_fix_and_drops_the_sample(
    program: Path, tmp_path: Path, how: str, problem: str
) -> None:
    code, text = execute(program, str(tmp_path), how)
    assert code == 1
    assert problem in text
    assert "\n  fix: " in text
    assert names_in(tmp_path) == ["inputs/000000.npz", "manifest.json", "outputs/000000.npz"]
    assert not list(tmp_path.glob("*.part"))


@needs_compiler
def test_a_sample_without_commit_leaves_nothing(program: Path, tmp_path: Path) -> None:
    assert execute(program, str(tmp_path), "drop") == (0, "")
    assert names_in(tmp_path) == ["inputs/000000.npz", "manifest.json", "outputs/000000.npz"]
    assert not list(tmp_path.glob("*.part"))


@needs_compiler
def test_the_header_stops_at_half_a_sample_too(program: Path, tmp_path: Path) -> None:
    execute(program, str(tmp_path), "drop")
    (tmp_path / "inputs" / "000000.npz").unlink()
    code, text = execute(program, str(tmp_path), "drop")
    assert code == 1
    assert "no twin" in text
    assert f"fix: delete {tmp_path / 'outputs' / '000000.npz'}" in text


@needs_compiler
def test_python_continues_what_the_header_began(program: Path, recorder: ModuleType, tmp_path: Path) -> None:
    execute(program, str(tmp_path), "drop")
    assert recorder.record({"x": ONE}, {"y": ONE}, directory=tmp_path) == 1
    with pytest.raises(recorder.RecordingError, match="another directory"):
        recorder.record({"x": ONE}, {"z": ONE}, directory=tmp_path)


@needs_compiler
def test_the_page_s_cpp_example_runs(tmp_path: Path) -> None:
    (example,) = blocks("cpp")
    assert execute(build(tmp_path, example)) == (0, "")
    outputs = read(tmp_path / "recording-cpp" / "outputs" / "000002.npz")
    np.testing.assert_array_equal(outputs["/block1/Mul_output_0"], np.ones((1, 4), np.float16), strict=True)
    np.testing.assert_array_equal(outputs["y"], np.full((1, 10), 0.25, np.float32), strict=True)
