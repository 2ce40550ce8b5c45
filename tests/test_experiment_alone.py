"""`parityscope experiment`: an experiment of a study run again alone, from what the study says was asked."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.study import load_study, repeat_experiment

if TYPE_CHECKING:
    from pathlib import Path

_RNG = np.random.default_rng(4)
_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8] a, float[2,8] b) => (float[2,6] y) {
  p = MatMul(a, wa)
  q = MatMul(b, wb)
  t = Tanh(q)
  s = Add(p, t)
  c = Clip(s, low, high)
  y = MatMul(c, wo)
}"""
_CONSTANTS = {
    "wa": _RNG.normal(size=(8, 16)).astype(np.float32),
    "wb": _RNG.normal(size=(8, 16)).astype(np.float32),
    "wo": _RNG.normal(size=(16, 6)).astype(np.float32),
    "low": np.array(0.0, np.float32),
    "high": np.array(3.0, np.float32),
}
_SWAPPED = _MODEL.replace("MatMul(a, wa)", "MatMul(b, wa)").replace("MatMul(b, wb)", "MatMul(a, wb)")


def _written(text: str, path: Path) -> None:
    model = onnx.parser.parse_model(text)
    for name, array in _CONSTANTS.items():
        if f"{name})" in text or f"{name}," in text:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of exchanged bindings and a lost bound, made with relative paths in a folder of its own."""
    folder = tmp_path_factory.mktemp("made")
    place = folder / "place"
    place.mkdir()
    _written(_MODEL, place / "model.onnx")
    _written(_SWAPPED.replace("Clip(s, low, high)", "Clip(s, low)"), place / "deployed.onnx")
    draw = np.random.default_rng(5)
    for number in range(3):
        write_npz(
            place / "inputs" / f"{number:06d}.npz", {name: draw.normal(size=(2, 8)).astype(np.float32) for name in "ab"}
        )
    words = ["diagnose", "model.onnx", "--candidate", "ort?model=deployed.onnx", "--inputs", "inputs", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("parityscope.cli.shell.supervise.supervise_work", lambda work: work())
        assert exit_status(*words, "--study", str(folder / "study")) == 1
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    """The study and its files in folders of this test's own."""
    for name in ("place", "study"):
        shutil.copytree(made / name, tmp_path / name)
    path = tmp_path / "study" / "study.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["question"]["folder"] = str(tmp_path / "place")
    path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    return tmp_path / "study"


def _asked(study: Path, identity: str, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = exit_status("experiment", str(study), identity, "--format", "json", "--quiet", *words)
    return code, json.loads(capfd.readouterr().out)


def test_every_experiment_of_the_study_is_listed(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status("experiment", str(study)) == 0
    lines = capfd.readouterr().out.splitlines()
    document = read_study(study)
    told = [one for finding in document["findings"] for one in finding["evidence"]] + document["refuted"]
    assert all(one["experiment"]["identity"] for one in told)
    assert {line.split()[0] for line in lines} == {one["experiment"]["identity"] for one in told}


def test_an_experiment_that_refuted_refutes_again(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = _asked(study, "BND002-1", capfd)
    assert (code, found["same"]) == (0, True)
    assert found["then"]["outcome"] == found["now"]["outcome"] == "refutes"
    assert found["then"]["after"] == pytest.approx(found["now"]["after"], rel=1e-6)


def test_a_step_and_what_was_found_behind_it_are_repeated_with_the_steps_before(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = read_study(study)
    steps = [step["experiment"] for step in document["sequence"]["steps"]]
    assert steps == ["BND001-1", "FUS002-1@2"]
    for identity in steps:
        code, found = _asked(study, identity, capfd)
        assert (code, found["now"]["outcome"]) == (0, "supports")


def test_only_that_experiment_is_run(study: Path, tmp_path: Path) -> None:
    document = load_study(study).document
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "place")
        found = repeat_experiment(document, "BND001-1", tmp_path / "scratch")
        alone = repeat_experiment(document, "DAT009-1", tmp_path / "scratch-2")
    assert found.same
    assert alone.same
    assert alone.experiment["check"] == "DAT009"


def test_text_says_expectation_and_both_outcomes(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status("experiment", str(study), "BND002-2", "--quiet") == 0
    text = capfd.readouterr().out
    for part in ("if true:", "if false:", "then:", "now:", "the outcome is that of the study"):
        assert part in text


def test_a_mended_deployment_has_another_outcome(
    study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # The bindings are right now, and the bound is still lost: exchanging them explains nothing any more.
    deployed = tmp_path / "place" / "deployed.onnx"
    _written(_MODEL.replace("Clip(s, low, high)", "Clip(s, low)"), deployed)
    code, found = _asked(study, "BND001-1", capfd, "--candidate", f"ort?model={deployed}")
    assert (code, found["same"]) == (1, False)
    assert found["notes"] == ["model= of the candidate is not what the study was made with"]
    assert found["now"]["outcome"] == "refutes"


def test_what_nothing_asks_for_any_more_has_no_outcome(
    study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deployed = tmp_path / "place" / "deployed.onnx"
    shutil.copy(tmp_path / "place" / "model.onnx", deployed)
    assert exit_status("experiment", str(study), "BND001-1") == 2
    assert "the candidate's model of the study had the digest" in capfd.readouterr().err
    code, found = _asked(study, "BND001-1", capfd, "--candidate", f"ort?model={deployed}")
    assert (code, found["now"]) == (3, None)
    assert "within policy now" in found["reason"]


def test_an_unknown_experiment_is_an_error(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_status("experiment", str(study), "BND001-99") == 2
    assert "no experiment 'BND001-99'" in capfd.readouterr().err


def test_a_model_that_moved_is_an_error_that_says_what_to_do(
    study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "elsewhere.onnx"
    shutil.move(tmp_path / "place" / "model.onnx", moved)
    assert exit_status("experiment", str(study), "BND002-1") == 2
    said = capfd.readouterr().err
    assert "not at model.onnx any more" in said
    assert "--model PATH" in said
    code, found = _asked(study, "BND002-1", capfd, "--model", str(moved))
    assert (code, found["same"]) == (0, True)


def test_a_candidate_or_samples_that_moved_are_errors(
    study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deployed, inputs = tmp_path / "place" / "deployed.onnx", tmp_path / "place" / "inputs"
    shutil.move(deployed, tmp_path / "moved.onnx")
    assert exit_status("experiment", str(study), "BND002-1") == 2
    assert "--candidate TARGET" in capfd.readouterr().err
    candidate = f"ort?model={tmp_path / 'moved.onnx'}"
    shutil.move(inputs, tmp_path / "samples")
    assert exit_status("experiment", str(study), "BND002-1", "--candidate", candidate) == 2
    assert "--inputs PATH" in capfd.readouterr().err
    words = ("--candidate", candidate, "--inputs", str(tmp_path / "samples"))
    assert _asked(study, "BND002-1", capfd, *words)[0] == 0


def test_another_model_in_its_place_is_an_error(study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _written(_SWAPPED, tmp_path / "place" / "model.onnx")
    assert exit_status("experiment", str(study), "BND002-1") == 2
    assert "the model of the study had the digest" in capfd.readouterr().err


def test_a_redacted_study_cannot_be_repeated_and_says_why(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = study / "study.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["question"] = {}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert exit_status("experiment", str(study), "BND002-1") == 2
    assert "does not say what was asked" in capfd.readouterr().err


def test_redacting_leaves_out_what_was_asked(study: Path, tmp_path: Path) -> None:
    words = [
        "diagnose",
        str(tmp_path / "place" / "model.onnx"),
        "--inputs",
        str(tmp_path / "place" / "inputs"),
        "--quiet",
    ]
    candidate = f"ort?model={tmp_path / 'place' / 'deployed.onnx'}"
    assert exit_status(*words, "--candidate", candidate, "--study", str(tmp_path / "shared"), "--redact") == 1
    assert str(tmp_path) not in (tmp_path / "shared" / "study.json").read_text(encoding="utf-8")
    with pytest.raises(ParityError, match="does not say what was asked"):
        repeat_experiment(load_study(tmp_path / "shared").document, "BND002-1", tmp_path / "scratch")
    assert study.exists()
