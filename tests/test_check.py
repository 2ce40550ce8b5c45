"""`parityscope check`: every pair of a policy file, against the policy and the baseline, in the formats that other tools read."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import fastjsonschema
import numpy as np
import pytest

from command_line import exit_status, read_study
from parityscope.study.checking import running
from parityscope.study.checking.pairs import read_check_file
from parityscope.testing.networks import write_network

SARIF = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"
TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { t = Tanh(x) y = Mul(t, t) }'
FILE = """
declared = "f16"

[[check]]
name = "good"
model = "m.onnx"
candidate = "sim:f16"
inputs = "samples"
"""
BEYOND = """
[[check]]
name = "bad"
model = "m.onnx"
candidate = "sim:bf16"
inputs = "samples"
"""
ERROR = """
[[check]]
name = "gone"
model = "m.onnx"
candidate = "saved?path=nowhere"
inputs = "samples"
"""


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    write_network(tmp_path / "m.onnx", TEXT, {})
    (tmp_path / "samples").mkdir()
    draw = np.random.default_rng(5)
    for place in range(2):
        np.savez(tmp_path / "samples" / f"{place}.npz", x=draw.normal(size=(1, 16)).astype(np.float32))
    (tmp_path / "parityscope.toml").write_text(FILE, "utf-8")
    return tmp_path


def change_baseline(folder: Path, change: dict[str, Any], factor: float = 1.0) -> None:
    path = folder / "parity-baseline.json"
    held = json.loads(path.read_text("utf-8"))
    entry = held["pairs"]["good"]
    for key, value in change.items():
        entry[key] = {**entry[key], **value}
    for output in entry["outputs"]:
        output["rel_l2"] *= factor
    path.write_text(json.dumps(held), "utf-8")


def test_a_baseline_is_written_held_and_told(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("check", "--study", "first", "--update") == 0
    assert "✓ good  'y' differs by" in capsys.readouterr().out
    written = (desk / "parity-baseline.json").read_text("utf-8")
    assert len(written) < 4000
    assert str(desk) not in written
    assert exit_status("check", "--study", "second", "--update") == 0
    assert "the baseline is" in capsys.readouterr().out
    assert (desk / "parity-baseline.json").read_text("utf-8") == written  # nothing changed, and so does nothing in git

    change_baseline(desk, {"candidate": {"version": "0.1", "environment": {"onnxruntime": "0.1"}}}, 0.3)
    assert exit_status("check", "--study", "second", "-o", "worse.xml", "-o", "worse.sarif", "-o", "worse.md") == 1
    told = capsys.readouterr().out
    assert re.search(r"✕ good  worse than the baseline: 'y' .* larger; since candidate onnxruntime: 0\.1 → ", told)
    suite = ET.parse(desk / "worse.xml").getroot()[0]  # noqa: S314 - our own text
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite.findall("testcase")[1].find("failure") is not None
    results = json.loads((desk / "worse.sarif").read_text("utf-8"))["runs"][0]["results"]
    assert "BASELINE" in [one["ruleId"] for one in results]
    assert "worse than the baseline" in (desk / "worse.md").read_text("utf-8")
    assert exit_status("check", "--study", "second", "--format", "github") == 1
    assert "::error title=Worse than the baseline%3A good::" in capsys.readouterr().out

    change_baseline(desk, {}, 10.0)
    assert exit_status("check", "--study", "second") == 0
    told = capsys.readouterr().out
    assert "✓ good  better than the baseline" in told
    assert "--update keeps what became better" in told

    change_baseline(desk, {"inputs": {"sha256": "0"}})
    assert exit_status("check", "--study", "second") == 3
    assert "the studies were made with other samples" in capsys.readouterr().out


def test_a_long_name_is_one_that_a_folder_can_have(desk: Path) -> None:
    names = [f"{'é' * 200}{end}" for end in "ab"]
    tables = (f'[[check]]\nname = "{name}"\nmodel = "m.onnx"\ncandidate = "sim:f16"\n' for name in names)
    (desk / "parityscope.toml").write_text("".join(tables), "utf-8")
    found = {one.name for one in read_check_file(desk / "parityscope.toml", 1 << 29).pairs}
    assert len(found) == 2
    assert all(len(name.encode()) < 200 for name in found)


def test_what_fails_is_told_in_every_format(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (desk / "parityscope.toml").open("a", encoding="utf-8") as file:
        file.write(BEYOND + ERROR)
    files = [word for suffix in ("xml", "sarif", "md", "html", "json", "txt") for word in ("-o", f"out.{suffix}")]
    assert exit_status("check", "--study", "s", *files, "--format", "github") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in lines[:3]] == ["✓ good", "✕ bad ", "✕ gone"]
    assert "1 beyond the policy, 1 could not be examined, 1 within" in lines[3]
    assert [line for line in lines if line.startswith("::error")]

    suites = ET.parse(desk / "out.xml").getroot()  # noqa: S314 - our own text
    assert [suite.get("id") for suite in suites] == ["0", "1", "2"]
    assert [(suite.get("failures"), suite.get("errors")) for suite in suites] == [("0", "0"), ("1", "0"), ("0", "1")]
    assert all(suite.get("timestamp") and suite.get("hostname") for suite in suites)

    sarif = json.loads((desk / "out.sarif").read_text("utf-8"))
    fastjsonschema.compile(json.loads(SARIF.read_text("utf-8")))(sarif)
    (run,) = sarif["runs"]
    assert {one["ruleId"] for one in run["results"]} == {one["id"] for one in run["tool"]["driver"]["rules"]}
    assert {"UNEXAMINED"} < {one["ruleId"] for one in run["results"]}

    assert "#### bad" in (desk / "out.md").read_text("utf-8")
    assert "<h2>What was checked</h2>" in (desk / "out.html").read_text("utf-8")
    held = json.loads((desk / "out.json").read_text("utf-8"))
    assert held["counts"]["within"] == 1
    assert (desk / "out.txt").read_text("utf-8").splitlines()[0] == lines[0]
    # What is beyond was diagnosed, and each study lies in its folder.
    study = read_study(desk / "s" / "bad")
    assert study["question"]["asked"]["depth"] == "causes"
    assert (desk / "s" / "good" / "report.html").is_file()


def test_an_interrupted_check_goes_on(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (desk / "parityscope.toml").open("a", encoding="utf-8") as file:
        file.write(BEYOND)
    examine = running.examine_request

    def interrupted(asked: Any) -> Any:
        if asked.candidate.precision == "bf16":
            raise KeyboardInterrupt
        return examine(asked)

    with monkeypatch.context() as patch:
        patch.setattr(running, "examine_request", interrupted)
        assert exit_status("check", "--study", "s", "--no-causes") == 130
        assert (
            "interrupted; 1 of 2 checks are done\n  fix:   the same command with --study s" in capsys.readouterr().err
        )
    examined: list[str] = []
    monkeypatch.setattr(
        running, "examine_request", lambda asked: examined.append(asked.request.candidate) or examine(asked)
    )
    assert exit_status("check", "--study", "s", "--no-causes") == 1
    assert examined == ["sim:bf16"]
    # What lies there is taken only where it answers the same question.
    np.savez(desk / "samples" / "9.npz", x=np.ones((1, 16), np.float32))
    assert exit_status("check", "--study", "s", "--only", "good") == 2
    assert "was made with another data" in capsys.readouterr().out
    (desk / "s" / "good" / "study.json").write_text("{", "utf-8")
    assert exit_status("check", "--study", "s", "--only", "good") == 2
    assert "choose another --study, or remove it: rm -r s/good" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it names nothing to check"),
        ('[[check]]\nmodel = "m.onnx"\n', "it names no candidate"),
        ('[[check]]\ncandidate = "sim:f16"\n', "it names no model"),
        ('[[check]]\nmodel = "n.onnx"\ncandidate = "sim:f16"\n', "there is no model 'n.onnx'"),
        ('[[check]]\nmodel = "m.onnx"\ncandidate = "sim:f16"\ninputs = "none/"\n', "there is no data 'none/'"),
        ('[[check]]\nmodel = "m.onnx"\ncandidate = "simm:f16"\n', "there is no backend 'simm'"),
        ('[[check]]\nmodel = "m.onnx"\ncandidat = "sim:f16"\n', "'candidat' has no meaning here"),
        ('[[check]]\nmodel = "m.onnx"\ncandidate = "ort"\nstacked = 1\n', "neither true nor false"),
        (
            '[[check]]\nmodel = "m.onnx"\ncandidate = "ort"\n[[check.budget]]\nmetric = "rel_l2"\nlimit = 1\n',
            "reason is missing",
        ),
        ('[[check]]\nmodel = "m.onnx"\ncandidate = ["ort", "ort"]\n', "two checks are called 'm-ort'"),
        ('[[check]]\nmodel = "m.onnx"\ncandidate = "ort"\nseed = -1\n', "seed = -1 is no whole number from 0 on"),
        (FILE + 'baseline = "m.onnx"\n', "'baseline' has no meaning here"),  # it stands behind the tables
        ('baseline = "m.onnx"\n' + FILE, "the baseline"),
        (FILE.replace('"good"', '"..."'), "name = '...' has no letter and no digit"),
    ],
)
def test_a_mistake_is_one_error_with_a_fix(
    desk: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "parityscope.toml").write_text(text, "utf-8")
    assert exit_status("check", "--study", "s") == 2
    said = capsys.readouterr()
    assert told in said.err
    assert "fix:" in said.err
    assert (said.out, (desk / "s").exists()) == ("", False)


def test_a_name_or_format_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--only", "else"), ("--format", "xml"), ("-o", "out.exe"), ("other.toml",)):
        assert exit_status("check", *words) == 2
        assert "fix:" in capsys.readouterr().err


def test_a_table_says_its_own_budgets_and_targets(desk: Path) -> None:
    budget = '[[{0}]]\nmetric = "{1}"\nlimit = {2}\nreason = "r"\n'
    text = (
        'samples = 1\ndeclared = "f16"\n'
        + budget.format("budget", "rel_l2", 0.1)
        + budget.format("budget", "cosine", 0.9)
    )
    text += '[[check]]\nmodel = "m.onnx"\ncandidate = ["sim:f16", "ort?model=m.onnx"]\nsamples = 2\ndeclared = "bf16"\n'
    text += budget.format("check.budget", "rel_l2", 0.2)
    (desk / "parityscope.toml").write_text(text, "utf-8")
    first, second = read_check_file(desk / "parityscope.toml", 1 << 29).pairs
    assert (first.name, second.name) == ("m-sim-f16", "m-ort-model-m.onnx")
    assert second.request.candidate == f"ort?model={desk / 'm.onnx'}"
    policy: Any = first.request.policy
    assert (first.request.samples, policy.declared) == (2, "bf16")
    assert [(one.metric, one.limit) for one in policy.budgets] == [("cosine", 0.9), ("rel_l2", 0.2)]
    # For other commands the same file is a policy as before.
    assert (
        exit_status("compare", "m.onnx", "--candidate", "sim:f16", "--policy", "parityscope.toml", "--study", "c") == 0
    )


def test_a_baseline_of_other_outputs_is_not_judged_and_written_again(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("check", "--study", "first", "--update") == 0
    write_network(desk / "m.onnx", TEXT.replace(" y", " z"), {})
    for more in ([], ["--no-causes"]):
        assert exit_status("check", "--study", f"second{len(more)}", "-o", f"{len(more)}.xml", *more) == 3
        assert "? good  the baseline: the studies have no output in common: 'y' before" in capsys.readouterr().out
    assert exit_status("check", "--study", "third", "--update") == 3
    assert exit_status("check", "--study", "fourth") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": 5},
        {"outputs": ["y"]},
        {"candidate": 7},
        {"policy": {"budgets": [7]}},
        {"question": {"files": [1]}},
        {"outputs": [{"name": "y", "verdict": "within", "rel_l2": "small"}]},
    ],
)
def test_a_baseline_that_was_merged_by_hand_is_one_error(
    desk: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("check", "--study", "first", "--update") == 0
    path = desk / "parity-baseline.json"
    held = json.loads(path.read_text("utf-8"))
    held["pairs"]["good"] |= change
    path.write_text(json.dumps(held), "utf-8")
    capsys.readouterr()
    assert exit_status("check", "--study", "second") == 2
    assert "the entry of 'good' is not as it was written" in capsys.readouterr().err


def test_a_baseline_that_cannot_be_written_is_told_before_the_work(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("--baseline", "nowhere/b.json"), ("--baseline", "b.json", "-o", "b.json")):
        assert exit_status("check", "--study", "s", "--update", *words) == 2
        assert "the baseline cannot be written: " in capsys.readouterr().err
        assert not (desk / "s").exists()
    (desk / "shared").mkdir()
    (desk / "link.json").symlink_to("shared/b.json")
    assert exit_status("check", "--study", "s", "--update", "--baseline", "link.json") == 0
    assert (desk / "link.json").is_symlink()
    assert (desk / "shared" / "b.json").is_file()


def test_a_baseline_is_not_written_where_nothing_was_examined(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "parityscope.toml").write_text(ERROR, "utf-8")
    assert exit_status("check", "--study", "s", "--update") == 2
    assert "is written" not in capsys.readouterr().err
    assert not (desk / "parity-baseline.json").exists()


def test_what_another_check_wrote_meanwhile_stays(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = FILE[FILE.index("[[check]]") :].replace("good", "other")
    (desk / "parityscope.toml").write_text(FILE + other, "utf-8")
    examine = running.examine_request

    def examine_both(asked: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(running, "examine_request", examine)
            assert exit_status("check", "--study", "t", "--only", "other", "--update") == 0
        return examine(asked)

    monkeypatch.setattr(running, "examine_request", examine_both)
    assert exit_status("check", "--study", "s", "--only", "good", "--update") == 0
    assert set(json.loads((desk / "parity-baseline.json").read_text("utf-8"))["pairs"]) == {"good", "other"}
