"""What `parityscope repair` is asked and answers on the command line: budgets, plans that are applied again, bad options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from parityscope.cli import main

if TYPE_CHECKING:
    from pathlib import Path

# Differences of nearly equal numbers: see test_search.py.
TEXT = """<ir_version: 9, opset_import: ["" : 19]> g (float[1,16] x) => (float[1,16] y) {
    t = Mul(x, small)  p = Add(t, one)  d = Sub(p, one)  u = Div(d, small)  y = MatMul(u, w) }"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(TEXT)
    random = np.random.default_rng(3)
    weights = {"small": np.float32([1e-3]), "one": np.float32([1]), "w": random.normal(size=(16, 16))}
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(proto, tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    for number in range(6):
        np.savez(tmp_path / "data" / f"{number}.npz", x=random.normal(size=(1, 16)).astype(np.float32))
    return tmp_path


def told(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    given = ["repair", str(folder / "model.onnx"), "--inputs", str(folder / "data"), "--threads", "1", "--quiet"]
    with pytest.raises(SystemExit) as ended:
        main([*given, *words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def document(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return dict(json.loads(told(folder, capsys, *words, "--format", "json")[1]))


def test_a_plan_is_certified_anew_for_its_budget_on_what_was_not_searched_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = document(folder, capsys, "--budget", "y:rel_l2=5e-3", "--search-samples", "4", "-o", str(folder / "a.onnx"))
    plan = ("--plan", str(folder / "a.plan.toml"))
    again = document(folder, capsys, *plan, "-o", str(folder / "b.onnx"))
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()
    limits = [[(one["output"], one["metric"], one["limit"]) for one in each["budgets"]] for each in (first, again)]
    assert limits == [[("y", "rel_l2", 5e-3)]] * 2
    assert [again[key] for key in ("search_samples", "held_out")] == [
        first[key] for key in ("search_samples", "held_out")
    ]
    assert again["certificate"]["worst"] == first["certificate"]["worst"]
    looser = document(folder, capsys, *plan, "--budget", "rel_l2=1", "-o", str(folder / "c.onnx"))
    assert looser["budgets"][0]["limit"] == 1
    # Of other data nobody knows what was searched on.
    np.savez(folder / "data" / "6.npz", x=np.ones((1, 16), np.float32))
    other = document(folder, capsys, *plan, "-o", str(folder / "d.onnx"))
    assert (other["search_samples"], len(other["held_out"])) == ([], 7)
    for words, problem in ((("--low", "bf16"), "--low is for a search"), (("--pick", "1"), "--pick is for a search")):
        code, _, said = told(folder, capsys, *plan, *words, "-o", str(folder / "e.onnx"))
        assert code == 2
        assert problem in said


def test_copies_of_samples_do_not_certify_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document(folder, capsys, "--budget", "rel_l2=5e-3", "-o", str(folder / "a.onnx"))
    for number in range(30):
        np.savez(folder / "data" / f"copy{number}.npz", x=np.ones((1, 16), np.float32))
    again = document(folder, capsys, "--plan", str(folder / "a.plan.toml"), "-o", str(folder / "b.onnx"))
    assert len(again["held_out"]) == 7
    assert "29 held-out samples" in again["skipped"][0]["what"]


def test_nothing_is_written_where_nothing_is_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = told(folder, capsys, "--budget", "rel_l2=100", "-o", str(folder / "a.onnx"))
    assert code == 0  # too few samples to be sure, and within on each
    assert said.startswith("✓ Within budget on all 6 samples tried")
    assert "no file was written" in " ".join(said.split())
    assert "1 evaluation (" in said
    assert sorted(path.name for path in folder.glob("a.*")) == []


@pytest.mark.parametrize(
    ("words", "problem", "fix"),
    [
        (("--evaluations", "-3"), "--evaluations -3 makes no sense", "larger number"),
        (("--sensing", "-3"), "--sensing -3 makes no sense", "larger number"),
        (("--threads", "-1"), "--threads -1 makes no sense", "larger number"),
        (("--budget", "z:rel_l2=1e-2"), "a budget is for 'z', and the model has no such output", "use one of: y"),
    ],
)
def test_bad_options(
    words: tuple[str, ...], problem: str, fix: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = told(folder, capsys, *words, "-o", str(folder / "a.onnx"))
    assert code == 2
    assert problem in said
    assert fix in said
    assert not list(folder.glob("a.*"))


def test_what_tensorrt_has_against_the_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unique is in no table of TensorRT's; the file is written and the operator named."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,8] x) => (float[4,8] y, float[n] z) {
      z = Unique(x)
      a = Mul(x, large)
      b = Mul(a, small)
      y = MatMul(b, w)
    }"""
    model = onnx.parser.parse_model(text)
    numbers = np.random.default_rng(3)
    weights = {"large": np.float32([1e6]), "small": np.float32([1e-6]), "w": numbers.normal(size=(8, 8))}
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "data").mkdir()
    for place in range(6):
        np.savez(tmp_path / "data" / f"{place}.npz", x=numbers.normal(size=(4, 8)).astype(np.float32))
    found = document(tmp_path, capsys, "--budget", "y:rel_l2=5e-3", "-o", str(tmp_path / "r.onnx"))
    assert (tmp_path / "r.onnx").exists()
    reasons = {one["what"]: one["reason"] for one in found["skipped"]}
    assert reasons["Unique in TensorRT (looked up, not run)"] == "not supported by TensorRT 10's table of operators"
