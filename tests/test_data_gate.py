"""Samples, recordings, labels and images of strangers: refused before they cost anything, with exit code 2."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import safetensors.numpy

from command_line import exit_status
from parityscope.case import load_inputs, load_model
from parityscope.case.formats import polygraphy
from parityscope.case.formats.images import read_image
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }'
X = np.ones((1, 4), np.float32)


def npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def announced(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """A .npy whose header says `shape`, whatever follows it."""
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(held, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return held.getvalue() + content


def archived(path: Path, name: str, content: bytes, kind: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, content)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 << 30)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    np.savez(tmp_path / "right.npz", x=X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one error that the command ends with."""
    assert exit_status(*words) == 2
    told = capsys.readouterr().err
    assert told.count("parityscope: ") == 1
    assert "  fix:   " in told
    return told


def asked(data: str) -> tuple[str, ...]:
    return ("compare", "m.onnx", "--candidate", "sim:f16", "--inputs", data)


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "x.json"])
@pytest.mark.parametrize("make", [os.mkfifo, endless, sparse])
def test_what_is_no_file_of_samples(
    desk: Path, capsys: pytest.CaptureFixture[str], name: str, make: Callable[[Path], None]
) -> None:
    make(desk / name)
    refused(capsys, *asked(name))
    refused(capsys, "compare", "m.onnx", "--candidate", f"saved?path={name}", "--inputs", "right.npz")


@pytest.mark.parametrize(
    "content",
    [
        announced((1, 4)),
        announced((10**12,), X.tobytes()),
        announced((1, 4), X.tobytes() + b"\0"),
        announced((-1, -4), X.tobytes()),
    ],
)
def test_a_header_is_held_against_what_is_there(desk: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    archived(desk / "x.npz", "x.npy", content)
    refused(capsys, *asked("x.npz"))
    archived(desk / "labels.npz", "class.npy", content)
    words = ("verify", "m.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "right.npz", "--no-timing")
    refused(capsys, *words, "--metric", "top1", "--labels", "labels.npz")


def test_an_archive_that_becomes_much_more_than_it_is(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = np.zeros((1, (300 << 20) // 4), np.float32)
    archived(desk / "x.npz", "x.npy", npy(array), zipfile.ZIP_DEFLATED)
    assert "would become" in refused(capsys, *asked("x.npz"))


@pytest.mark.parametrize("content", [pickle.dumps({"a": 1}), b"text", b""])
def test_labels_that_are_no_arrays(desk: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    archived(desk / "labels.npz", "class.npy", content)
    words = ("verify", "m.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "right.npz", "--no-timing")
    refused(capsys, *words, "--metric", "top1", "--labels", "labels.npz")


@pytest.mark.parametrize("labels", [[-1], [4], [10**12], [np.nan]])
def test_labels_of_classes_that_there_are_not(
    desk: Path, capsys: pytest.CaptureFixture[str], labels: list[float]
) -> None:
    np.savez(desk / "labels.npz", y=np.array(labels))
    words = ("verify", "m.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "right.npz", "--no-timing")
    refused(capsys, *words, "--metric", "top1", "--labels", "labels.npz")


def test_more_classes_than_there_are_cannot_agree(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("verify", "m.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "right.npz", "--no-timing")
    refused(capsys, *words, "--metric", "topk_agreement?k=5")


@pytest.mark.parametrize("place", [[False, 16], [0, 15], [4, 20], ["0", "16"], [0, 2**63], [0.0, 16.0], [0, 16, 32]])
def test_places_in_safetensors_are_whole(desk: Path, capsys: pytest.CaptureFixture[str], place: list[object]) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [1, 4], "data_offsets": place}}).encode()
    (desk / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + X.tobytes())
    refused(capsys, *asked("x.safetensors"))


def test_images_have_a_size_that_can_be_read(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "photos").mkdir()
    (desk / "photos" / "a.ppm").write_bytes(b"P6 100000 100000 255\n" + b"\0" * 100)
    (desk / "prepare.py").write_text("def f(image):\n    return image\n", encoding="utf-8")
    words = ("--preprocess", "prepare.py:f")
    assert "pixels" in refused(capsys, *asked("photos"), *words)


def test_what_names_say_is_cut_short(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archived(desk / "x.npz", "n" * 60_000 + ".npy", npy(X))
    told = refused(capsys, *asked("x.npz"))
    assert len(told) < 3000
    assert "characters" in told


@pytest.mark.parametrize(
    "name", ["\x1b[2Jred", "a\nb", "<script>", "../x", "a/../x", "--help", "\u202egnp", " ", "n" * 201]
)
def test_the_only_array_has_a_plain_name(desk: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    safetensors.numpy.save_file({name: X}, desk / "x.safetensors")
    assert "input 'x' is missing" in refused(capsys, *asked("x.safetensors"))


@pytest.mark.parametrize(
    "line",
    ["scale = nan", "size = [8.5, 8]", "shorter = 1", "fill = [300, 0, 0]", "deviation = inf", "size = [60000, 60000]"],
)
def test_a_recipe_of_numbers_that_mean_nothing(desk: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    (desk / "photos").mkdir()
    (desk / "photos" / "a.ppm").write_bytes(b"P6 2 2 255\n" + b"\0" * 12)
    size = "" if line.startswith("size") else "size = [8, 8]\n"
    (desk / "prepare.toml").write_text(f'{size}fit = "shorter"\n{line}\n', encoding="utf-8")
    refused(capsys, *asked("photos"), "--preprocess", "prepare.toml")


@pytest.mark.parametrize("text", ["stage = [3]", 'inputs = ""', 'stacked = "yes"', "inputs = 3", "[[stage]]\nname = 3"])
def test_a_pipeline_says_words(desk: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    stage = '\n[[stage]]\nname = "one"\nmodel = "m.onnx"\ncandidate = "sim:f16"\n'
    (desk / "chain.toml").write_text(text + ("" if "stage" in text else stage), encoding="utf-8")
    refused(capsys, "pipeline", "chain.toml")


def test_a_folder_with_the_name_of_a_sample_is_none(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "samples" / "b.npz").mkdir(parents=True)
    np.savez(desk / "samples" / "a.npz", x=X)
    assert "a folder, not a regular file" in refused(capsys, *asked("samples"))


def test_a_recording_whose_files_have_names_that_are_no_text(desk: Path) -> None:
    (desk / "rec").mkdir()
    np.savez(desk / "rec" / "right.npz", y=X)
    (desk / "rec" / os.fsdecode(b"\xc3.txt")).write_bytes(b"beside")
    assert exit_status("diagnose", "m.onnx", "--candidate", "saved?path=rec", "--inputs", "right.npz") == 0


def test_raw_bytes_are_counted_before_they_are_read(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "blobs").mkdir()
    sparse(desk / "blobs" / "y.bin")
    told = refused(capsys, "compare", "m.onnx", "--candidate", "saved?path=blobs", "--inputs", "right.npz")
    assert "needs 16 bytes" in told


def test_a_target_that_there_is_not_is_said_before_a_model_is_read(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "m.onnx").write_bytes(b"no model")
    assert "there is no backend 'nope'" in refused(capsys, "compare", "m.onnx", "--candidate", "nope")


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_what_a_file_announces_is_held_against_the_model_and_the_memory_before_it_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Tanh(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    path = tmp_path / f"x.{kind}"

    def write(array: np.ndarray) -> None:
        if kind == "npz":
            write_npz(path, {"x": array})
        else:
            safetensors.numpy.save_file({"x": array}, path)

    write(np.zeros((1 << 18, 4), np.float32))
    monkeypatch.setattr("parityscope.case.formats.npz.read_npy", _never)
    monkeypatch.setattr("parityscope.trace.StoredTensor.load", _never)
    with pytest.raises(ParityError, match="takes 4 MiB in memory, more than the 1 MiB of --memory"):
        load_inputs(model, path, spool=tmp_path / "spool", memory=1 << 20)
    write(np.zeros((1 << 10, 5), np.float32))
    with pytest.raises(ParityError, match=r"found the shape \[1024, 5\]"):
        load_inputs(model, path, spool=tmp_path / "spool")


def test_an_image_and_an_encoded_array_are_held_against_the_memory(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Tanh(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    polygraphy.write_inputs(tmp_path / "x.json", [{"x": np.zeros((1 << 18, 4), np.float32)}])
    with pytest.raises(ParityError, match="takes 5 MiB in memory, more than the 1 MiB of --memory"):
        load_inputs(model, tmp_path / "x.json", spool=tmp_path / "spool", memory=1 << 20)
    assert len(load_inputs(model, tmp_path / "x.json", spool=tmp_path / "spool")) == 1
    Image = pytest.importorskip("PIL.Image")  # noqa: N806 - a module
    Image.new("RGB", (400, 400)).save(tmp_path / "one.png")
    with pytest.raises(ParityError, match="400 x 400 pixels; at most 95325 are read") as raised:
        read_image(tmp_path / "one.png", 1 << 20)
    assert "--memory" in raised.value.fix
    assert read_image(tmp_path / "one.png").shape == (400, 400, 3)


def _never(*_: object) -> None:
    raise AssertionError("an element was read")
