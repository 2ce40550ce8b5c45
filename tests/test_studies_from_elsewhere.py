"""Studies that somebody sent: nothing is run, written or reached because they say so, and only the study's own files are used."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

from command_line import exit_status, read_study
from parityscope.backends import known_backends
from parityscope.backends.targets import named_code, parse_target
from parityscope.case.formats.npz import write_npz

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,4] y)
<float[3,4] w = {1000000, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8}> {
  m = MatMul(x, w)
  y = Neg(m)
}"""
_PREPARE = """import pathlib
import numpy as np
pathlib.Path({marker!r}).touch()

def samples():
    for number in range(2):
        yield {{"x": np.full((2, 3), number + 1, np.float32)}}

def prepare(image):
    return np.asarray(image, np.float32)[:2, :3, 0]

def network():
    import torch
    return torch.nn.Identity()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a weight that FP16 cannot hold, whose candidate is a recording of its simulation."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(onnx.parser.parse_model(_MODEL), folder / "model.onnx")
    draw = np.random.default_rng(5)
    for number in range(2):
        write_npz(folder / "inputs" / f"{number:06d}.npz", {"x": draw.normal(size=(2, 3)).astype(np.float32)})
    words = ["diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "inputs", "--study", "study", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("parityscope.cli.shell.supervise.supervise_work", lambda work: work())
        assert exit_status(*words) == 1
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study, its files, and programs that leave a marker."""
    place = tmp_path / "place"
    shutil.copytree(made, place)
    marker = tmp_path / "ran"
    (place / "evil.py").write_text(_PREPARE.format(marker=str(marker)), encoding="utf-8")
    (place / "evil.sh").write_text(f"#!/bin/sh\ntouch {marker}\n", encoding="utf-8")
    (place / "evil.sh").chmod(0o755)
    (place / "evil.so").write_bytes(b"\x7fELF")
    (place / "images").mkdir()
    monkeypatch.chdir(tmp_path)
    _change(place)
    return place


def _change(place: Path, asked: dict[str, Any] | None = None, **kept: Any) -> None:
    """Writes other words into what the study says was asked."""
    path = place / "study" / "study.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["question"] |= {"folder": str(place), **kept}
    document["question"]["asked"] |= asked or {}
    path.write_text(json.dumps(document), encoding="utf-8")


def _identity(place: Path) -> str:
    document = read_study(place / "study")
    return str(document["findings"][0]["evidence"][0]["experiment"]["identity"])


def _refused(place: Path, capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said where the experiment is refused and nothing ran."""
    capfd.readouterr()
    status = exit_status("experiment", str(place / "study"), _identity(place), "--quiet", *words)
    said = capfd.readouterr().err
    assert status == 2, said
    assert "fix:" in said
    assert not (place.parent / "ran").exists()
    return said


@pytest.mark.parametrize(
    "asked",
    [
        {"candidate": "command?run=./evil.sh"},
        {"reference": "command?run=./evil.sh"},
        {"candidate": "command?run=sh%20-c%20./evil.sh&isolate=on"},
        {"candidate": "python?call=evil.py:samples"},
        {"candidate": "torch?module=evil.py:network"},
        {"reference": "torch?script=evil.so"},
        {"candidate": "torch?program=evil.so"},
        {"candidate": "ort?custom_ops=evil.so"},
        {"reference": "ort?custom_ops=evil.so"},
        {"candidate": "trt?engine=evil.so"},
        {"candidate": "trt?plugins=evil.so"},
        {"candidate": "trt?timing_cache=study/study.json"},
        {"candidate": "trt?summary=out.json"},
        {"candidate": "triton?url=localhost:9&name=m"},
        {"reference": "triton"},
        {"inputs": "evil.py:samples"},
        {"inputs": "images", "preprocess": "evil.py:prepare"},
    ],
    ids=str,
)
def test_code_that_a_study_names_is_not_run_and_the_command_that_names_it_is_told(
    asked: dict[str, str], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _change(place, asked)
    said = _refused(place, capfd)
    name = next(name for name in reversed(asked))
    assert "nothing is run because a study says so" in said
    assert f"--{name} " in said
    assert asked[name].partition("?")[0] in said


def test_code_among_the_settings_is_not_run(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _change(place, {"real": "evil.py:samples"})
    assert "--real evil.py:samples" in _refused(place, capfd)
    _change(place, {"real": "", "peer": "command?run=./evil.sh"})
    _refused(place, capfd)


def test_a_question_of_an_older_form_is_asked_again_and_code_in_it_is_not_run(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = place / "study" / "study.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    asked = document["question"]["asked"]
    asked["own_inputs"] = asked.pop("candidate_inputs")
    settings = {name: asked.pop(name) for name in ("real", "states", "steps", "mapping", "thorough")}
    document["question"]["settings"] = {**settings, "layers": asked.pop("depth") == "causes"}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert exit_status("experiment", str(place / "study"), _identity(place), "--quiet") == 0
    document["question"]["settings"]["real"] = "evil.py:samples"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert "--real evil.py:samples" in _refused(place, capfd)


def test_every_option_of_our_backends_is_known_as_data_or_as_code() -> None:
    # Whoever adds an option decides here whether a study from elsewhere may set it.
    code = {
        "ort": {"custom_ops"},
        "trt": {"engine", "timing_cache", "plugins", "build_route", "summary"},
    }
    for name, backend in known_backends().items():
        if name in {"command", "python", "torch", "triton"}:
            assert backend.plain is None
        else:
            assert backend.plain is not None
            assert {*backend.options} == backend.plain | backend.files | code.get(name, set())
            assert not named_code(parse_target(f"{name}?model=x&isolate=on"), backend)


@pytest.mark.story
def test_a_program_that_the_user_names_is_run(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Thirty runs of it: a shell starts in a hundredth of the time that Python and numpy take.
    np.savez(place / "answer.npz", y=np.zeros((2, 4), np.float32))
    program = place / "answers.sh"
    program.write_text(
        f'for given in "$1"/*.npz; do cp {place / "answer.npz"} "$2/${{given##*/}}"; done\n', encoding="utf-8"
    )
    candidate = f"command?run=/bin/sh {program}"
    words = ["diagnose", str(place / "model.onnx"), "--candidate", candidate, "--inputs", str(place / "inputs")]
    assert exit_status(*words, "--study", str(place / "second"), "--quiet") == 1
    document = read_study(place / "second")
    identity = document["refuted"][0]["experiment"]["identity"]
    capfd.readouterr()
    asked = ["experiment", str(place / "second"), identity, "--format", "json", "--quiet"]
    assert exit_status(*asked) == 2
    assert f"--candidate '{candidate}'" in capfd.readouterr().err
    assert exit_status(*asked, "--candidate", candidate) in {0, 3}
    assert json.loads(capfd.readouterr().out)["notes"] == []
    program.write_text(program.read_text(encoding="utf-8") + "# another\n", encoding="utf-8")
    assert exit_status(*asked, "--candidate", candidate) in {0, 3}
    assert json.loads(capfd.readouterr().out)["notes"] == ["run= of the candidate is not what the study was made with"]
    assert exit_status(*asked, "--candidate", "ort") == 2
    assert "is another one" in capfd.readouterr().err


def test_what_the_user_names_is_meant_from_where_the_user_is(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # ./evil.sh lies in the study's folder, and not here.
    _change(place, {"candidate": "command?run=./evil.sh"})
    said = _refused(place, capfd, "--candidate", "command?run=./evil.sh")
    assert "there is no program './evil.sh'" in said


def _strange(place: Path) -> Iterator[tuple[str, str]]:
    """Names of files that are not the study's, by the option that names them."""
    os.mkfifo(place / "pipe.npz")
    os.mkfifo(place / "pipe.onnx")
    (place / "link.npz").symlink_to("/dev/zero")
    (place / "loop").symlink_to("loop")
    for path in (
        "/dev/zero",
        "pipe.npz",
        "link.npz",
        "loop",
        "/proc/self/mem",
        "/etc/passwd",
        "..",
        "/",
        "images",
        "\0",
    ):
        yield "candidate", f"saved?path={path}"
    for path in ("/dev/zero", "pipe.onnx", "/proc/self/mem", "/etc/passwd", "evil.py"):
        yield "candidate", f"ort?model={path}"
        yield "reference", f"ort?model={path}"
        yield "model", path
    for path in ("/dev/zero", "pipe.npz", "/etc/passwd", "/proc/self/mem", "images"):
        yield "candidate", f"sim:int8?dynamic_range={path}"
        yield "candidate_inputs", path
        yield "images", path


def test_files_that_are_not_the_studys_are_not_used(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = read_study(place / "study")["question"]["asked"]
    for name, value in _strange(place):
        _change(place, {**kept, name: value})
        _refused(place, capfd)


def test_a_recording_is_used_only_as_it_was(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        write_npz(place / "answers" / f"{number:06d}.npz", {"y": np.zeros((2, 4), np.float32)})
    words = ["diagnose", str(place / "model.onnx"), "--candidate", f"saved?path={place / 'answers'}"]
    words += ["--inputs", str(place / "inputs"), "--study", str(place / "second"), "--quiet"]
    assert exit_status(*words) == 1
    document = read_study(place / "second")
    asked = ["experiment", str(place / "second"), document["refuted"][0]["experiment"]["identity"], "--quiet"]
    assert exit_status(*asked) in {0, 3}
    write_npz(place / "answers" / "000001.npz", {"y": np.ones((2, 4), np.float32)})
    capfd.readouterr()
    assert exit_status(*asked) == 2
    said = capfd.readouterr().err
    assert "path= of the candidate is not what the study was made with" in said
    assert "--candidate TARGET" in said
    assert exit_status(*asked, "--candidate", f"saved?path={place / 'answers'}") in {0, 1, 3}
    assert "note:      path= of the candidate is not what the study was made with" in capfd.readouterr().out


@pytest.mark.parametrize(
    "kept",
    [
        {"folder": 3},
        {"folder": "relative"},
        {"folder": None},
        {"files": [3]},
        {"files": {"candidate.path": 3}},
        {"asked": []},
        {"asked": {}},
    ],
    ids=str,
)
def test_a_question_of_other_types_is_an_error(
    kept: dict[str, Any], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _change(place, **kept) if "asked" not in kept else _replace(place, kept["asked"])
    _refused(place, capfd)


def _replace(place: Path, asked: object) -> None:
    path = place / "study" / "study.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["question"]["asked"] = asked
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    "asked",
    [
        {"model": 3},
        {"model": ""},
        {"candidate": ""},
        {"candidate": None},
        {"candidate": "evil?x=y"},
        {"steps": "x"},
        {"states": {"a": 3}},
        {"depth": "everything"},
        {"samples": "all"},
        {"samples": True},
        {"shapes": {"x": 3}},
        {"shapes": {"x": ["2", {}]}},
        {"seed": -1, "inputs": None},
        {"evil": 1},
    ],
    ids=str,
)
def test_options_of_other_types_are_errors(
    asked: dict[str, Any], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _change(place, asked)
    _refused(place, capfd)


def test_a_study_that_is_no_whole_document_is_an_error(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = place / "study" / "study.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    texts = ["[" * 100_000, "{}", "\xff", '{"a": ' + "9" * 20_000 + "}"]
    texts += [json.dumps({**whole, name: value}) for name in ("findings", "outputs", "model") for value in (3, [3])]
    for text in texts:
        path.write_text(text, encoding="latin-1")
        for words in (("report", str(place / "study"), "--format", "html"), ("experiment", str(place / "study"), "X")):
            capfd.readouterr()
            status, said = exit_status(*words), capfd.readouterr().err
            assert (status, "fix:" in said) == (2, True), (words, said)
    path.unlink()
    os.mkfifo(path)
    assert exit_status("report", str(place / "study")) == 2
    assert "the study is a pipe" in capfd.readouterr().err


def test_a_study_of_more_values_than_memory_should_hold_is_refused(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "study" / "study.json").write_text("[" + "{}," * 10_000_000 + "{}]", encoding="utf-8")
    assert exit_status("report", str(place / "study")) == 2
    assert "values, more than fit into" in capfd.readouterr().err
