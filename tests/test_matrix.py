"""`parityscope matrix`: every combination examined once, what changed since the last run first, interrupted runs gone on with."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.errors import ParityError
from parityscope.study.checking.matrix import read_matrix_file
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { t = Tanh(x) y = Mul(t, t) }'
FILE = """
declared = "f16"

[matrix]
models = ["{version}/m.onnx"]
versions = ["v1", "v2"]
targets = ["sim:f16", "ort?model={version}/m.onnx"]
inputs = "samples"
"""


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        write_network(tmp_path / version / "m.onnx", TEXT, {})
    (tmp_path / "samples").mkdir()
    draw = np.random.default_rng(5)
    np.savez(tmp_path / "samples" / "0.npz", x=draw.normal(size=(1, 16)).astype(np.float32))
    (tmp_path / "fleet.toml").write_text(FILE, "utf-8")
    return tmp_path


def run(folder: Path, status: int, *more: str) -> dict[str, Any]:
    assert exit_status("matrix", "fleet.toml", "--no-causes", "--quiet", "-o", "out.json", *more) == status
    found: dict[str, Any] = json.loads((folder / "out.json").read_text("utf-8"))
    (folder / "out.json").unlink()
    return found


def test_a_fleet_is_one_table_and_what_changed_comes_first(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(desk, 0, "--study", "one")
    assert [(one["row"], one["column"]) for one in first["cells"]] == [
        ("m v1", "sim:f16"),
        ("m v1", "ort?model={version}/m.onnx"),
        ("m v2", "sim:f16"),
        ("m v2", "ort?model={version}/m.onnx"),
    ]
    assert first["differences"] == []
    assert all(one["last"] is None and one["now"]["latency_s"] > 0 for one in first["cells"])
    assert "There is no last run yet" in capsys.readouterr().out

    # As if one cell had been beyond the night before.
    last = json.loads((desk / "fleet-last.json").read_text("utf-8"))
    name = first["cells"][3]["name"]
    last["pairs"][name]["outputs"][0]["rel_l2"] = 0.5
    last["pairs"][name] |= {"verdict": "beyond", "cause": "RNG001", "latency_s": 1e6}
    (desk / "fleet-last.json").write_text(json.dumps(last), "utf-8")
    second = run(desk, 0, "--study", "two", "-o", "out.md", "-o", "out.html")
    told = {one["what"]: (one["before"], one["after"]) for one in second["differences"] if one["column"] != "sim:f16"}
    assert told["verdict"] == ("beyond", "within")
    assert told["cause"] == ("RNG001", "")
    assert told["error of y"] == (0.5, 0.0)
    assert told["latency_s"][0] == 1e6
    shown = capsys.readouterr().out
    assert shown.index("Since the last run") < shown.index("verdict beyond -> within") < shown.index("within\n")
    assert "cause RNG001 -> none" in (desk / "out.md").read_text("utf-8").replace("\\", "")
    assert "Since the last run" in (desk / "out.html").read_text("utf-8")


def test_a_cell_that_cannot_be_examined_keeps_what_it_had_and_a_run_goes_on(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(desk, 0, "--study", "one")
    kept = json.loads((desk / "fleet-last.json").read_text("utf-8"))["pairs"]
    studies = [desk / "one" / cell["name"] / "study.json" for cell in first["cells"]]
    written = [study.stat().st_mtime_ns for study in studies]  # a study tells whole seconds, which two runs can share
    shutil.rmtree(studies[0].parent)
    again = run(desk, 0, "--study", "one")
    assert [cell["name"] for cell in again["cells"]] == [cell["name"] for cell in first["cells"]]
    same = [study.stat().st_mtime_ns == before for study, before in zip(studies, written, strict=True)]
    assert same == [False, True, True, True]
    (desk / "fleet.toml").write_text(FILE.replace('"sim:f16", ', '"saved?path=nowhere", "sim:f16", '), "utf-8")
    broken = run(desk, 2, "--study", "two")
    assert broken["counts"]["error"] == 2
    error = broken["cells"][0]["error"]
    assert error["fix"]
    assert f"{error['problem']}; {error['fix']}" in capsys.readouterr().out
    assert set(json.loads((desk / "fleet-last.json").read_text("utf-8"))["pairs"]) == set(kept)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('declared = "f16"', "no matrix"),
        ("[matrix]\nmodels = []\ntargets = ['ort']", "models is no list"),
        ("[matrix]\nmodels = ['v1/m.onnx']", "targets is no list"),
        ("[matrix]\nmodels = ['v1/m.onnx', 'v2/m.onnx']\ntargets = ['ort']", "two cells are called"),
        ("[matrix]\nmodels = ['gone.onnx']\ntargets = ['ort']", "no model"),
        ("[matrix]\nmodels = ['v1/m.onnx']\ntargets = ['ort']\ncolour = 1", "colour"),
        ("[matrix]\nmodels = ['v1/m.onnx']\ntargets = ['ort']\nversion = ['v1']", r"(?s)'version'.*write versions"),
        ("[matrix]\nmodels = ['v1/m.onnx']\ntargets = ['ort']\ncandidate = 'ort'", "candidate"),
        ("[matrix]\nmodels = ['v1/m.onnx']\ntargets = ['ort']\nsettings = ['threads=x', 'thread=1']", "thread"),
    ],
)
def test_what_is_no_matrix_is_refused(desk: Path, text: str, problem: str) -> None:
    (desk / "fleet.toml").write_text(text, "utf-8")
    with pytest.raises(ParityError, match=problem):
        read_matrix_file(desk / "fleet.toml", 1 << 29)


def test_what_cannot_be_written_is_told_before_any_cell_is_examined(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "taken").write_text("a file", "utf-8")
    assert exit_status("matrix", "fleet.toml", "--study", "taken/tonight") == 2
    said = capsys.readouterr().err
    assert "nothing can be written to taken/tonight" in said
    assert "choose another --study" in said
    assert "m v1" not in said


def test_many_samples_are_columns_beside_the_study(desk: Path) -> None:
    rows = np.random.default_rng(6).normal(size=(1001, 16)).astype(np.float32)
    np.savez(desk / "many.npz", x=rows)
    text = FILE.replace('"samples"', '"many.npz"\nstacked = true').replace('"v1", "v2"', '"v1"')
    (desk / "fleet.toml").write_text(text, "utf-8")
    cell = run(desk, 0, "--study", "one")["cells"][0]
    (output,) = read_study(desk / "one" / cell["name"])["outputs"]
    with np.load(desk / "one" / cell["name"] / output["per_sample_summary"]["file"]) as columns:
        assert columns[output["per_sample_summary"]["error"]].shape == (1001,)


def test_latency_is_measured_apart_from_the_comparison(desk: Path) -> None:
    cells = run(desk, 0, "--study", "one")["cells"]
    for cell in cells:
        side = read_study(desk / "one" / cell["name"])["candidate"]
        simulated = cell["column"] == "sim:f16"
        assert (side["latency_s"] is None) == simulated
        told = side["seconds"] if simulated else side["latency_s"]  # one sample
        assert cell["now"]["latency_s"] == pytest.approx(told, rel=1e-2)


def test_workers_come_to_the_same_cells(desk: Path) -> None:
    alone, shared = run(desk, 0, "--study", "one"), run(desk, 0, "--study", "two", "--workers", "2")
    for one, other in zip(alone["cells"], shared["cells"], strict=True):
        paths = (desk / "one" / one["name"], desk / "two" / other["name"])
        first, second = (read_study(path) for path in paths)
        assert first["outputs"] == second["outputs"]
    assert exit_status("matrix", "fleet.toml", "--study", "three", "--workers", "none") == 2


def test_a_failure_that_was_not_diagnosed_is_diagnosed_when_that_is_asked(desk: Path) -> None:
    far = FILE.replace('declared = "f16"', 'declared = "f32"').replace(
        '"sim:f16", "ort?model={version}/m.onnx"', '"sim:bf16"'
    )
    (desk / "fleet.toml").write_text(far.replace('"v1", "v2"', '"v1"'), "utf-8")
    first = run(desk, 1, "--study", "one")
    study = desk / "one" / first["cells"][0]["name"] / "study.json"
    assert json.loads(study.read_text("utf-8"))["question"]["asked"]["depth"] == "outputs"
    assert exit_status("matrix", "fleet.toml", "--quiet", "--study", "one") == 1
    assert json.loads(study.read_text("utf-8"))["question"]["asked"]["depth"] == "causes"
    written = study.stat().st_mtime_ns
    assert exit_status("matrix", "fleet.toml", "--quiet", "--study", "one") == 1
    assert study.stat().st_mtime_ns == written


def test_a_version_that_also_stands_elsewhere_in_a_target_keeps_its_column(desk: Path) -> None:
    text = (
        FILE.replace("v1", "1").replace("v2", "2").replace('"sim:f16", ', "")
        + 'settings = ["threads=1", "threads=2"]\n'
    )
    (desk / "v1").rename(desk / "1")
    (desk / "v2").rename(desk / "2")
    (desk / "fleet.toml").write_text(text, "utf-8")
    columns = [one.column for one in read_matrix_file(desk / "fleet.toml", 1 << 29).cells]
    assert columns == [f"ort?model={{version}}/m.onnx&threads={one}" for one in (1, 2)] * 2
