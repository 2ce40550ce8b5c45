"""The main job from the command line, on a real model with real input; `make demo` holds what it says of one that FP16 breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import in_a_process, in_this_process, read_study
from parityscope.case.formats.npz import write_npz
from parityscope.testing.networks import write_network
from proving.models.fetching import ocr_det_input, ocr_rec_input, page_image, rendered_line, require

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.npz"
    write_npz(path, ocr_det_input(page_image(), (384, 192)))
    return path


@pytest.fixture(scope="module")
def diagnosed(page: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("diagnosed")
    words = ["--candidate", "ort?optimization=disabled", "--inputs", str(page), "--study", "study", "--format", "json"]
    done = in_a_process("diagnose", str(require("ocr-det")), *words, folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder / "study"


@pytest.mark.model
def test_the_document_follows_the_design(diagnosed: tuple[dict[str, Any], Path]) -> None:
    document, study = diagnosed
    keys = "schema verdict model reference candidate environment outputs suspects findings refuted sequence skipped"
    keys += " unexplained"
    # What a first screen needs is there too, so that a saved form is read again; what tables and plots need stays in the study.
    assert set(keys.split()) | {"headline", "command", "question"} <= set(document)
    assert not {"statistics", "measurements", "tensors"} & set(document)
    assert document["schema"] == "parityscope/1"
    assert read_study(study)["verdict"] == "within"
    assert (study / "report.html").is_file()
    assert not (study / "tensors").exists()


@pytest.mark.model
def test_a_study_is_never_overwritten_and_can_be_rendered_again(diagnosed: tuple[dict[str, Any], Path]) -> None:
    _, study = diagnosed
    words = ["--candidate", "ort", "--study", str(study)]
    again = in_this_process("diagnose", str(require("ocr-det")), *words, folder=study.parent)
    assert again.returncode == 2
    assert "never overwritten" in again.stderr
    rendered = in_this_process("report", str(study), folder=study.parent)
    assert rendered.returncode == 0
    assert "can be used" in rendered.stdout


@pytest.mark.model
def test_the_optimizer_makes_no_difference(diagnosed: tuple[dict[str, Any], Path]) -> None:
    document, _ = diagnosed
    assert document["verdict"] == "within"
    assert [one["grade"] for one in document["outputs"]] == ["f32"]
    assert [one["role"] for one in document["findings"]].count("cause") == 0


@pytest.mark.model
def test_outputs_that_polygraphy_saved(tmp_path: Path) -> None:
    model = str(require("ocr-rec"))
    np.save(tmp_path / "unused.npy", np.zeros(1))
    line = ocr_rec_input(rendered_line("Parity in 2024"))
    shape = ",".join(str(dim) for dim in line["x"].shape)
    command = [sys.executable, "-m", "polygraphy", "run", model, "--onnxrt", "--input-shapes", f"x:[{shape}]"]
    command += ["--save-inputs", "in.json", "--save-outputs", "out.json"]
    environment = {**os.environ, "POLYGRAPHY_AUTOINSTALL_DEPS": "0"}
    tool = os.path.join(os.path.dirname(sys.executable), "polygraphy")  # noqa: PTH118, PTH120 - keep the venv's link
    done = subprocess.run(
        [tool, *command[3:]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    words = ["--candidate", "saved?path=out.json", "--inputs", "in.json", "--study", "s", "--format", "json"]
    found = in_this_process("diagnose", model, *words, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["outputs"][0]["rel_l2"] == 0


def test_bad_input_is_one_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    np.savez(tmp_path / "x.npz", wrong=np.zeros(3))
    cases = [
        ["diagnose", "missing.onnx", "--candidate", "ort"],
        ["diagnose", "broken.onnx", "--candidate", "ort"],
        ["diagnose", "broken.onnx", "--candidate", "nonsense"],
        ["diagnose", "broken.onnx", "--candidate", "ort", "--memory", "much"],
        ["report", "nowhere"],
        ["explain", "XYZ999"],
        ["list", "nothing"],
    ]
    for words in cases:
        done = in_this_process(*words, folder=tmp_path)
        assert done.returncode == 2, words
        assert "Traceback" not in done.stderr, words
        assert "fix:" in done.stderr, words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.onnx", "x.npz"]


def test_a_crash_of_a_runtime_is_one_error(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    script.write_text(
        "import os, signal, sys\n"
        "from parityscope.cli.shell.supervise import supervise_work\n"
        "sys.exit(supervise_work(lambda: os.kill(os.getpid(), signal.SIGSEGV)))\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "SIGSEGV" in done.stderr
    assert "fix:" in done.stderr


def test_import_is_light() -> None:
    code = "import sys, parityscope; print([n for n in ('numba','onnxruntime','onnx','openvino','jinja2') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_compares_brings_no_check_no_hypothesis_and_no_pipeline() -> None:
    parts = ("checks", "hypotheses", "explanation", "localization", "study._pipeline", "study._experiment_again")
    code = (
        "import sys, parityscope.study.document, parityscope.backends.ort\n"
        "from parityscope.study import examine_request, open_request, write_study\n"
        f"print([name for name in sys.modules if name.startswith(tuple('parityscope.' + part for part in {parts}))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_makes_no_study_brings_nothing_that_makes_one(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    write_network(tmp_path / "m.onnx", text)
    code = (
        "import sys; from parityscope.cli import run_command\n"
        "assert run_command(['lint', 'm.onnx', '--quiet', '--format', 'json']) == 0\n"
        "made = [one for one in ('examination', 'expectation', 'study') if f'parityscope.{one}' in sys.modules]\n"
        "print(made, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_doctor_lists_every_backend(tmp_path: Path) -> None:
    done = in_a_process("doctor", "--format", "json", folder=tmp_path)
    assert done.returncode == 0
    assert set(json.loads(done.stdout)["backends"]) >= {"ort", "openvino", "saved", "command", "sim"}
