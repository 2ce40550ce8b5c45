"""Batches: rows that must not know of each other; outputs read wrongly; promises of operators; odd answers of candidates."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import parityscope
from command_line import exit_status
from parityscope.case.formats.npz import write_npz
from parityscope.checks.misreading.readings import misreadings_of
from parityscope.checks.output_misread import explain_misreading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,64] y, float[N,64] z) {
  y = Tanh(x)
  z = Sin(x)
}"""
PROGRAM = """
import sys
from pathlib import Path

import numpy as np

source, sink = map(Path, sys.argv[1:])
for file in sorted(source.glob("*.npz")):
    x = np.load(file)["x"]
    y, z = np.tanh(x), np.sin(x)
    BODY
    np.savez(sink / file.name, **found)
"""


def _written(folder: Path, rows: int) -> list[dict[str, np.ndarray]]:
    """The model in a folder, and samples of it."""
    onnx.save(onnx.parser.parse_model(MODEL), folder / "m.onnx")
    numbers = np.random.default_rng(2)
    return [{"x": numbers.normal(size=(rows, 64)).astype(np.float32)} for _ in range(2)]


def diagnosed(change: Callable[[np.ndarray], np.ndarray], folder: Path, rows: int = 4) -> dict[str, Any]:
    """The study of a function that computes rightly but for what `change` makes of `y`."""
    samples = _written(folder, rows)

    def candidate(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": change(np.tanh(arrays["x"])), "z": np.sin(arrays["x"])}

    found = parityscope.diagnose(folder / "m.onnx", candidate=candidate, inputs=samples).document
    assert found["verdict"] == "beyond"
    return found


def program_diagnosed(body: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """How the command line ends with a program that computes rightly but for `body`."""
    for place, arrays in enumerate(_written(folder, 4)):
        write_npz(folder / "in" / f"{place}.npz", arrays)
    program = folder / "infer.py"
    program.write_text(PROGRAM.replace("BODY", body), encoding="utf-8")
    line = ["diagnose", str(folder / "m.onnx"), "--inputs", str(folder / "in"), "--study", str(folder / "study")]
    line += ["--candidate", f"command?run={sys.executable} {program}", "--format", "json", "--quiet"]
    code = exit_status(*line)
    printed = capfd.readouterr()
    return code, json.loads(printed.out) if printed.out.startswith("{") else {"stderr": printed.err}


def test_rows_behind_the_first_are_wrong(tmp_path: Path) -> None:
    # Four equal rows get four answers, and each alone is right: the batch is the cause.
    found = diagnosed(lambda y: y * (1 + np.arange(len(y))[:, None] / 10).astype(np.float32), tmp_path)
    assert (found["findings"][0]["code"], found["findings"][0]["role"]) == ("SHP001", "cause")
    assert found["findings"][0]["details"]["output"] == "y"
    # Row 3 is 1.3 times row 0: |0.3 y| / |y|.
    assert found["findings"][0]["details"]["row"] == 3
    assert found["findings"][0]["details"]["apart"] == pytest.approx(0.3, rel=1e-4)


def test_rows_of_a_batch_that_cannot_be_taken_apart(tmp_path: Path) -> None:
    # At place 0 or 1 each row has its right answer.
    def change(y: np.ndarray) -> np.ndarray:
        assert len(y) == 4
        return y * np.array([1, 1, 0.9, 0.9], np.float32)[:, None]

    found = diagnosed(change, tmp_path)
    first = found["findings"][0]
    assert (first["code"], first["role"], first["share"]) == ("SHP001", "cause", pytest.approx(1.0))
    assert "with each row at place 0 the error falls" in first["claim"]
    assert "FUS014" not in {one["code"] for one in found["findings"]}


def test_a_row_that_leaks_into_its_neighbours(tmp_path: Path) -> None:
    found = diagnosed(lambda y: (y + 0.1 * (y.mean(axis=0) - y)).astype(np.float32), tmp_path)
    assert (found["findings"][0]["code"], found["findings"][0]["role"]) == ("SHP001", "cause")
    assert "neighbours" in found["findings"][0]["claim"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_that_was_built_in(size: int, tmp_path: Path) -> None:
    # Of both samples; from row `size` on each row has the answer of row r modulo `size`, and its own would be another.
    found = diagnosed(lambda y: y[np.arange(len(y)) % size], tmp_path)
    first = found["findings"][0]
    assert (first["code"], first["role"], first["share"]) == ("SHP001", "cause", pytest.approx(1.0))
    assert f"Every row from {size} on gets the first" in first["claim"]
    assert first["details"]["output"] == "y"
    assert first["details"]["row"] >= size


def test_a_candidate_that_is_not_the_same_twice_is_told_so_first(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    found = diagnosed(lambda y: (y + 0.1 * noise.normal(size=y.shape)).astype(np.float32), tmp_path)
    assert (found["findings"][0]["code"], found["findings"][0]["role"]) == ("RUN001", "cause")
    assert [one["code"] for one in found["findings"] if one["role"] == "cause"] == ["RUN001"]
    # The noise is 0.1 of 64 values of root mean square near 0.6, twice: the spread is told in numbers.
    assert 0.05 < found["findings"][0]["details"]["spread"] < 1.0


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("found = {'y': y}", 3, "did not give 'z' back"),
        ("found = {'y': y[:1], 'z': z}", 3, "its shape is [4, 64] in the reference and [1, 64] in the candidate"),
        ("found = {'y': y[:1], 'z': z[:1]}", 2, "batch size"),
        ("found = {'q': y}", 2, "no output could be compared"),
        # The second sample begins with 1.86, the first with 0.19.
        ("found = {'y': y, 'z': z} if x[0, 0] < 1 else {}", 3, "did not give 'y' back (it gave: nothing) (sample 1"),
    ],
)
def test_answers_that_are_not_whole_are_no_cause(
    body: str, code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended, found = program_diagnosed(body, tmp_path, capfd)
    assert ended == code
    text = found.get("stderr", json.dumps(found.get("skipped", [])))
    assert said in text
    assert not [one for one in found.get("findings", []) if one["role"] == "cause"]


def test_outputs_read_as_what_they_are_not() -> None:
    numbers = np.random.default_rng(6)
    y = numbers.normal(size=(2, 3, 4, 5)).astype(np.float32)
    assert "axes" in explain_misreading(y, y.transpose(0, 2, 3, 1).reshape(y.shape), 1e-6)[0]
    assert explain_misreading(y, y, 1e-6)[0] == ""
    assert explain_misreading(y, numbers.normal(size=y.shape).astype(np.float32), 1e-6)[0] == ""
    words, left = explain_misreading(y, y.reshape(-1)[::-1].reshape(y.shape), 1e-6)
    assert (words, left) == ("holds the right values in another order", 0.0)
    # 60 halves fill 30 floats of 60: the first 60 values are read back from the bytes.
    held = np.zeros(y.size, np.float32)
    held.view(np.float16)[: y.size] = y.reshape(-1).astype(np.float16)
    words, left = explain_misreading(y, held.reshape(y.shape), 2e-3)
    assert words == "was written as float16 and read as float32"
    assert left == 0  # what writing halves rounds is not left over, whatever was declared


def test_rows_with_a_pitch() -> None:
    # Rows of 3 float32 (12 bytes) that begin every 16: 0 1 2 _ 3 4 5 _ , read end to end into six elements.
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    found = dict(misreadings_of("layout", rows, None))
    packed = found["its rows begin every 16 bytes and were read end to end"]
    np.testing.assert_array_equal(packed, np.array([[1, 2, 3], [0, 4, 5]], np.float32))
    spread = found["its rows lie end to end and were read every 16 bytes"]
    np.testing.assert_array_equal(spread, np.array([[1, 2, 3], [5, 6, 0]], np.float32))


def test_pitches_that_leave_the_same_are_not_told_apart() -> None:
    # Rows of 4 bytes' width: pitches of 32 and more begin the second row behind the end of 2 x 3 x 4 = 24 bytes.
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    words = [words for words, _ in misreadings_of("layout", rows, None) if words.startswith("its rows")]
    assert words == [
        "its rows begin every 16 bytes and were read end to end",
        "its rows lie end to end and were read every 16 bytes",
    ]
    first = np.array([[1, 2, 3], [0, 0, 0]], np.float32)
    assert explain_misreading(rows, first, 1e-6) == ("", np.inf)
    # The same where the rows behind it are nought until the end of the buffer.
    sparse = np.zeros((6, 3), np.float32)
    sparse[0], sparse[5] = (1, 2, 3), (4, 5, 6)
    assert not [words for words, _ in misreadings_of("layout", sparse, None) if words.startswith("its rows begin")]
    assert dict(misreadings_of("part", np.ones((5, 4), np.float32), None))[
        "holds its first row alone: one row was copied, or its rows begin every 80 bytes or more"
    ].tolist() == [[1] * 4, *[[0] * 4] * 4]


def test_an_output_that_was_not_written_to_its_end_is_no_matter_of_the_batch(tmp_path: Path) -> None:
    # Equal rows get different answers then, and each row alone is right.
    found = diagnosed(lambda y: np.where(np.arange(y.size).reshape(y.shape) < 100, y, np.float32(0)), tmp_path)
    assert (found["findings"][0]["code"], found["findings"][0]["role"]) == ("BND003", "cause")
    assert "SHP001" not in {one["code"] for one in found["findings"]}
