"""`parityscope run --format ...`: what it writes is read back bit for bit, by Parityscope and by the programs it is for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from command_line import read_study
from parityscope.case.formats import trtexec
from parityscope.case.formats.exporting import WRITERS, WrittenSample, load_inputs, write_sample
from parityscope.cli import run_command
from parityscope.errors import ParityError

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, int64[N] k) => (float[N, 4] y, int64[2] size) {
    h = Tanh(x)  y = Mul(h, x)  size = Shape(y) }"""
SHAPES = ["--shapes", "x:2x4", "--shapes", "k:2"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    draw = np.random.default_rng(3)
    (tmp_path / "data").mkdir()
    for index in range(3):
        x = draw.normal(size=(2, 4)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{index}.npz", x=x, k=np.array([index, -(2**40)]))
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("kind", list(WRITERS))
def test_a_recording_is_read_back_bit_for_bit(kind: str, model: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert (
        run_command(["run", str(model), "--inputs", str(tmp_path / "data"), "--format", kind, "-o", str(record)]) == 0
    )
    shapes = SHAPES if kind == "trtexec" else []
    path = f"{record}&shapes=y:2x4" if kind == "trtexec" else record
    words = ["compare", str(model), "--candidate", f"saved?path={path}", "--inputs", str(record / "inputs"), *shapes]
    assert run_command([*words, "--format", "json", "--study", str(tmp_path / "study")]) == 0
    document = read_study(tmp_path / "study")
    assert [row["max_abs"] for row in document["outputs"]] == [0.0, 0.0]
    again = tmp_path / "again"
    assert run_command(["run", str(model), "--inputs", str(record / "inputs"), *shapes, "-o", str(again)]) == 0
    for index in range(3):
        with (
            np.load(again / "inputs" / f"{index:06d}.npz") as found,
            np.load(tmp_path / "data" / f"{index}.npz") as was,
        ):
            assert {name: found[name].tobytes() for name in found} == {name: was[name].tobytes() for name in was}


@pytest.mark.parametrize(("ending", "samples"), [(".npz", 1), (".json", 1), (".json", 3)])
def test_outputs_alone_go_into_one_file_of_its_ending(ending: str, samples: int, model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data" if samples == 3 else tmp_path / "data" / "1.npz"
    file = tmp_path / f"outputs{ending}"
    assert run_command(["run", str(model), "--inputs", str(data), "-o", str(file)]) == 0
    words = ["compare", str(model), "--candidate", str(file), "--inputs", str(data), "--study", str(tmp_path / "study")]
    assert run_command(words) == 0
    document = read_study(tmp_path / "study")
    assert document["inputs"]["samples"] == samples
    assert [row["max_abs"] for row in document["outputs"]] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "words", "said", "fix"),
    [
        ("y.npz", [], "an .npz holds the outputs of one sample, and there are 3", "-o "),
        (
            "y.json",
            ["--format", "trtexec"],
            "says by its ending what is written, and not trtexec",
            "leave --format out",
        ),
        ("no/y.json", [], "there is no folder", "mkdir -p"),
        ("data/1.npz", [], "never overwritten", "rm -r"),
    ],
)
def test_a_file_that_cannot_hold_the_outputs_is_refused(
    name: str, words: list[str], said: str, fix: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    asked = ["run", str(model), "--inputs", str(tmp_path / "data"), *words, "-o", str(tmp_path / name)]
    assert run_command(asked) == 2
    told = capsys.readouterr().err
    assert said in told
    assert fix in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_text_tells_outputs_element_by_element(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record"
    assert run_command(["run", str(model), "--inputs", str(tmp_path / "data"), "-o", str(record)]) == 0
    with np.load(record / "outputs" / "000001.npz") as held:
        changed = {name: held[name] for name in held}
    expected = changed["y"].astype(np.float64)
    changed["y"][1, 2] += 0.5
    np.savez(record / "outputs" / "000001.npz", **changed)
    capsys.readouterr()
    words = ["compare", str(model), "--candidate", f"saved?path={record}", "--inputs", str(record / "inputs")]
    assert run_command([*words, "--all", "--study", str(tmp_path / "study")]) == 1
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("Element by element")
    assert lines[place + 1].split()[:3] == ["output", "max", "abs"]
    row = next(line for line in lines[place:] if line.startswith("y "))
    assert " 0.500 " in row
    assert "[1, 2]" in row
    place = next(at for at, line in enumerate(lines) if "max |c - r| / |r|" in line)
    row = next(line for line in lines[place:] if line.startswith("y "))
    relative = np.abs(changed["y"].astype(np.float64) - expected) / np.abs(expected)
    assert relative.argmax() == np.ravel_multi_index((1, 2), relative.shape)
    assert f" {relative.max():.3g} [1, 2] " in re.sub(" +", " ", row)
    assert row.split()[-1] == "0"


def test_polygraphy_reads_what_is_written_for_it(model: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    words = ["run", str(model), "--inputs", str(tmp_path / "data"), "--format", "polygraphy", "-o", str(record)]
    assert run_command(words) == 0
    tool = Path(sys.executable).with_name("polygraphy")
    given = ["--load-inputs", str(record / "inputs"), "--load-outputs", str(record / "outputs")]
    done = subprocess.run(
        [tool, "run", str(model), "--onnxrt", *given, "--atol", "0", "--rtol", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout + done.stderr
    words = (record / "0000000002.args").read_text(encoding="utf-8").split()
    assert words == ["--load-inputs", f"{record}/inputs/0000000002.json", "--input-shapes", "x:[2,4]", "k:[2]"]
    done = subprocess.run([tool, "run", str(model), "--onnxrt", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blobs_are_raw_bytes_with_a_command_line_for_each_sample(model: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert (
        run_command(["run", str(model), "--inputs", str(tmp_path / "data"), "--format", "trtexec", "-o", str(record)])
        == 0
    )
    with np.load(tmp_path / "data" / "1.npz") as held:
        folder = record / "inputs" / "0000000001"
        assert (folder / "x.bin").read_bytes() == held["x"].tobytes()
        assert (folder / "k.bin").read_bytes() == held["k"].tobytes()
    lines = (record / "trtexec.sh").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == (
        'trtexec --loadEngine="${ENGINE:-model.plan}" --shapes=x:2x4,k:2 '
        "--loadInputs=x:inputs/0000000002/x.bin,k:inputs/0000000002/k.bin --exportOutput=exported/000002.json"
    )
    assert sum(line.startswith("trtexec") for line in lines) == 3
    words = (record / "0000000001.args").read_text(encoding="utf-8").split()
    assert words == ["--shapes=x:2x4,k:2", f"--loadInputs=x:{folder}/x.bin,k:{folder}/k.bin"]
    assert subprocess.run(["sh", "-n", record / "trtexec.sh"], check=False).returncode == 0


def test_what_a_format_cannot_hold_is_one_error(model: Path, tmp_path: Path) -> None:
    one = np.ones(1, np.float32)
    with pytest.raises(ParityError, match="commas and colons"):
        load_inputs("inputs", {"a:0": one})
    with pytest.raises(ParityError, match="one file name"):
        trtexec.write_blobs(tmp_path / "blobs", {"a/b": one, "a:b": one})
    with pytest.raises(ParityError, match="no format"):
        write_sample("csv", WrittenSample(folder=tmp_path, index=0, inputs={}, outputs={}))
    assert (
        run_command(
            ["run", str(model), "--inputs", str(tmp_path / "data"), "--format", "csv", "-o", str(tmp_path / "n")]
        )
        == 2
    )
    assert not (tmp_path / "n").exists()
