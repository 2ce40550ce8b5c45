"""`parityscope reduce`: the smallest model that still shows a finding, and the zip that goes with a bug report."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from command_line import exit_status
from parityscope.case import load_model
from parityscope.case.extracting import extract_part
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.study.reduction.pattern import pattern_of, what_shows
from parityscope.study.reduction.region import Graphs
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

_RNG = np.random.default_rng(11)
_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8] x) => (float[2,6] y) {
  a = MatMul(x, w)
  b = Add(a, bias)
  c = Tanh(b)
  d = MatMul(c, v)
  e = Mul(d, x16)
  f = Relu(e)
  y = MatMul(f, u)
}"""
_CONSTANTS = {
    "w": _RNG.normal(size=(8, 16)).astype(np.float32),
    "bias": _RNG.normal(size=16).astype(np.float32),
    "v": _RNG.normal(size=(16, 16)).astype(np.float32),
    "x16": _RNG.uniform(0.5, 1.5, 16).astype(np.float32),
    "u": _RNG.normal(size=(16, 6)).astype(np.float32),
}
_FAULTY = _MODEL.replace("c = Tanh(b)", "c = Softsign(b)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a deployment with another function in it, samples, and the study of both."""
    place = tmp_path_factory.mktemp("made")
    write_network(place / "model.onnx", _MODEL, _CONSTANTS)
    write_network(place / "deployed.onnx", _FAULTY, _CONSTANTS)
    draw = np.random.default_rng(5)
    for number in range(3):
        write_npz(place / "inputs" / f"{number:06d}.npz", {"x": draw.normal(size=(2, 8)).astype(np.float32)})
    words = ["diagnose", "model.onnx", "--candidate", "ort?model=deployed.onnx", "--inputs", "inputs", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert exit_status(*words, "--study", "study") == 1
    return place


@pytest.fixture(scope="module")
def proof(made: Path) -> Path:
    """The proof of that study, unpacked."""
    assert exit_status("reduce", str(made / "study"), "-o", str(made / "proof.zip"), "--quiet") == 0
    with zipfile.ZipFile(made / "proof.zip") as packed:
        packed.extractall(made / "proof")
    return made / "proof"


def _told(proof: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((proof / "proof.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.story
def test_the_region_of_the_suspect_is_all_that_is_left(proof: Path) -> None:
    told = _told(proof)
    assert (told["nodes"], told["model"]) == ({"before": 7, "after": 1}, ["c = Tanh(b)"])
    assert told["candidate_model"] == ["c = Softsign(b)"]
    assert told["finding"]["op_type"] == "Tanh"
    assert [one["shows"] for one in told["attempts"] if one["stage"] == "region"] == ["the same"]
    assert told["elements"]["after"] < told["elements"]["before"] / 20


def test_the_models_of_the_proof_are_sound_and_keep_what_was_recorded(proof: Path, made: Path) -> None:
    for name in ("model.onnx", "candidate.onnx"):
        onnx.checker.check_model(onnx.load(proof / name), full_check=True)
    entered = np.load(proof / "inputs" / "000000.npz")["b"]
    expected, actual = (np.load(proof / side / "000000.npz")["c"] for side in ("expected", "actual"))
    assert expected == pytest.approx(np.tanh(entered), rel=1e-5)
    assert actual == pytest.approx(entered / (1 + np.abs(entered)), rel=1e-5)
    real = np.load(made / "inputs" / "000000.npz")["x"] @ _CONSTANTS["w"] + _CONSTANTS["bias"]
    # The values are those of the model on its own samples, to the three digits that were kept.
    samples = [np.load(made / "inputs" / f"{n:06d}.npz")["x"] @ _CONSTANTS["w"] + _CONSTANTS["bias"] for n in range(3)]
    near = min(np.abs(np.concatenate([real, *samples]).ravel() - entered.ravel()[0]))
    assert near <= 5e-3 * abs(float(entered.ravel()[0]))


def test_the_program_needs_only_the_runtime_and_numpy(proof: Path) -> None:
    text = (proof / "reproduce.py").read_text(encoding="utf-8")
    assert "parityscope" not in text
    run = subprocess.run([sys.executable, "reproduce.py"], cwd=proof, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (1, "still off")
    (proof / "candidate.onnx").write_bytes((proof / "model.onnx").read_bytes())
    mended = subprocess.run([sys.executable, "reproduce.py"], cwd=proof, capture_output=True, text=True, check=False)
    assert (mended.returncode, mended.stdout.splitlines()[-1]) == (0, "not off any more")


def test_the_report_says_what_differs_where_and_what_was_tried(proof: Path) -> None:
    text = (proof / "issue.md").read_text(encoding="utf-8")
    for part in ("# Tanh: the converted file is off by", "c = Softsign(b)", "### Environment", "| region |"):
        assert part in text


def test_a_finding_that_is_gone_is_said_at_once(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mended = write_network(tmp_path / "mended.onnx", _MODEL, _CONSTANTS)
    words = ["reduce", str(made / "study"), "--candidate", f"ort?model={mended}", "-o", str(tmp_path / "x.zip")]
    assert exit_status(*words, "--quiet") == 3
    assert "does not show any more" in capfd.readouterr().err
    assert not (tmp_path / "x.zip").exists()


def test_a_recording_is_reduced_to_its_region_and_says_what_could_not_be_tried(made: Path, tmp_path: Path) -> None:
    words = ["run", str(made / "deployed.onnx"), "--inputs", str(made / "inputs"), "--all-tensors"]
    assert exit_status(*words, "--output", str(tmp_path / "recorded"), "--quiet") == 0
    words = ["reduce", str(made / "model.onnx"), "--candidate", f"saved?path={tmp_path / 'recorded'}"]
    words += ["--inputs", str(made / "inputs"), "-o", str(tmp_path / "x.zip"), "--quiet"]
    assert exit_status(*words) == 0
    with zipfile.ZipFile(tmp_path / "x.zip") as packed:
        told = json.loads(packed.read("proof.json"))
        assert "candidate.onnx" not in packed.namelist()
        assert "has no program of its own" not in packed.read("issue.md").decode()
        assert "was recorded and cannot be run again" in packed.read("issue.md").decode()
    assert told["nodes"] == {"before": 7, "after": 1}
    assert [one["what"] for one in told["skipped"]] == ["fewer shapes, weights and values"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["model.onnx"], "no candidate is given"),
        (["nowhere/"], "there is no"),
    ],
)
def test_what_cannot_be_reduced_is_refused(
    words: list[str], problem: str, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("reduce", str(made / words[0]), "-o", str(tmp_path / "x.zip")) == 2
    assert problem in capfd.readouterr().err


def test_a_study_that_is_within_has_nothing_to_reduce(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (made / "study" / "study.json").read_text(encoding="utf-8")
    document = json.loads(text) | {"verdict": "within"}
    (tmp_path / "study.json").write_text(json.dumps(document), encoding="utf-8")
    assert exit_status("reduce", str(tmp_path), "-o", str(tmp_path / "x.zip")) == 2
    assert "there is no finding to reduce" in capfd.readouterr().err


def test_a_part_reads_what_the_candidate_reads_there(made: Path, tmp_path: Path) -> None:
    other = write_network(tmp_path / "other.onnx", _MODEL.replace("e = Mul(d, x16)", "e = Mul(d, c)"), _CONSTANTS)
    model, own = load_model(made / "model.onnx"), load_model(other)
    names = {name: name for name in (*model.sites, "x")}
    graphs = Graphs(model, own, names, set(names))
    cut = graphs.cut(graphs.around("e"), "e")
    assert (cut.entering, cut.leaving) == (("c", "d"), ("e",))
    arrays = {name: np.zeros((2, 16), np.float32) for name in "cde"}
    given, made_of = {name: (name, arrays[name]) for name in cut.entering}, {"e": ("e", arrays["e"])}
    part = extract_part(model, given, made_of, tmp_path / "part.onnx")
    its = extract_part(own, given, made_of, tmp_path / "its.onnx")
    assert [value.name for value in part.inputs] == [value.name for value in its.inputs] == ["c", "d"]
    assert (part.nodes, its.nodes) == (1, 1)
    with pytest.raises(ParityError, match="cannot be cut out"):
        extract_part(own, {"d": ("d", arrays["d"])}, made_of, tmp_path / "lacks.onnx")


def beyond(code: str, tensor: str = "h") -> dict[str, Any]:
    """A document as far as a finding's pattern is read from it."""
    site = {"tensor": tensor, "node": "n", "op_type": "Conv"}
    finding = {"code": code, "title": "", "claim": "", "role": "cause", "site": site}
    return {"verdict": "beyond", "findings": [finding], "suspects": [], "outputs": [], "tensors": []}


@pytest.mark.parametrize(
    ("first", "then", "shows"),
    [
        (beyond("FUS002"), beyond("EXP005"), "the same"),
        (beyond("EXP005"), beyond("FUS002"), "the same"),
        (beyond("FUS002"), beyond("EXP005", "elsewhere"), "another finding"),
        (beyond("FUS002"), beyond("RNG001"), "another finding"),
        (beyond("EXP005"), {**beyond("EXP005"), "verdict": "within"}, "no finding"),
    ],
)
def test_a_changed_layer_is_one_finding_however_it_is_shown(
    first: dict[str, Any], then: dict[str, Any], shows: str
) -> None:
    assert what_shows(then, pattern_of(first))[0] == shows
