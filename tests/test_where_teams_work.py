"""The action for GitHub, the hooks for pre-commit and the example for GitLab, each run as far as it can be here.

The shell steps of the action and the script of the job run in bash, with `parityscope` and `python` first on the path: what they
install is only written down. The hooks run in pre-commit itself, in a repository of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parityscope.testing.networks import write_network

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { t = Tanh(x) y = Mul(t, t) }'
BROKEN = '<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => (float[1,4] y) { y = Mul(x, w) }'
CHECK = '[[check]]\nname = "{0}"\nmodel = "m.onnx"\ncandidate = "{1}"\ninputs = "samples"\n'


def action() -> dict[str, Any]:
    held: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    return held


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A repository with a model that is within and one that is broken in FP16, and our programs on the path."""
    write_network(tmp_path / "m.onnx", TEXT, {})
    write_network(tmp_path / "broken.onnx", BROKEN, {"w": np.full(4, 1e6, np.float32)})
    (tmp_path / "samples").mkdir()
    np.savez(tmp_path / "samples" / "0.npz", x=np.linspace(-1, 1, 16, dtype=np.float32)[None])
    (tmp_path / "parityscope.toml").write_text(CHECK.format("a good one", "sim:f16"), "utf-8")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, line in (
        ("parityscope", f'exec "{sys.executable}" -m parityscope "$@"'),
        ("python", 'echo "$@" >> installed'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        (programs / name).chmod(0o755)
    return tmp_path


def environment(desk: Path, **more: str) -> dict[str, str]:
    search = os.pathsep.join([str(desk / "programs"), os.environ["PATH"]])
    return {**os.environ, "PATH": search, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def run_action(desk: Path, **given: str) -> tuple[int, dict[str, str], str]:
    """The exit code of the first step that fails, else 0; the outputs; and what all of them printed."""
    held = action()
    inputs = {name: given.get(name, one["default"]) for name, one in held["inputs"].items()}
    files = {"GITHUB_OUTPUT": str(desk / "outputs"), "GITHUB_STEP_SUMMARY": str(desk / "summary.md")}
    status, printed = 0, ""
    for step in held["runs"]["steps"]:
        assert "${{" not in step["run"]  # nothing that a caller gives is read as a command
        said = {name: value.replace("${{ ", "").replace(" }}", "") for name, value in step["env"].items()}
        values = {name: inputs[value.removeprefix("inputs.")] for name, value in said.items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=desk,
            env=environment(desk, GITHUB_ACTION_PATH="/the action", **files, **values),
            capture_output=True,
            text=True,
            check=False,
        )
        printed += done.stdout + done.stderr
        if done.returncode:
            status = done.returncode
            break
    outputs = (desk / "outputs").read_text("utf-8").splitlines() if (desk / "outputs").exists() else []
    return status, dict(line.split("=", 1) for line in outputs), printed


def test_the_action_checks_and_tells(desk: Path) -> None:
    status, outputs, printed = run_action(desk)
    assert (status, outputs["status"]) == (0, "0"), printed
    assert "-m pip install --quiet /the action[all]" in (desk / "installed").read_text("utf-8")
    assert ET.parse(desk / outputs["junit"]).getroot()[0].get("failures") == "0"  # noqa: S314 - our own text
    assert json.loads((desk / outputs["sarif"]).read_text("utf-8"))["version"] == "2.1.0"
    assert "1 within" in (desk / "summary.md").read_text("utf-8")


def test_the_action_fails_where_a_check_does_and_runs_no_input(desk: Path) -> None:
    text = CHECK.format("bad", "sim:bf16") + 'declared = "f16"\n'
    (desk / "parityscope.toml").write_text(text + CHECK.format("good", "sim:f16"), "utf-8")
    status, outputs, printed = run_action(desk, extras="none", only="bad", study="$(touch owned); s")
    assert (status, outputs["status"]) == (1, "1"), printed
    assert "::error title=" in printed
    assert not (desk / "installed").exists()
    assert not (desk / "owned").exists()
    assert {suite.get("name") for suite in ET.parse(desk / outputs["junit"]).getroot()} == {"parityscope.bad"}  # noqa: S314


def test_what_the_action_promises_is_there() -> None:
    held = action()
    assert held["runs"]["using"] == "composite"
    (step,) = [one for one in held["runs"]["steps"] if "id" in one]
    named = {f"${{{{ steps.{step['id']}.outputs.{name} }}}}" for name in held["outputs"]}
    assert {one["value"] for one in held["outputs"].values()} == named
    assert all(f"{name}=" in step["run"] for name in held["outputs"])


def test_the_job_for_gitlab_runs(desk: Path) -> None:
    job = yaml.safe_load((ROOT / "docs" / "examples" / "gitlab-ci.yml").read_text("utf-8"))["models"]
    for line in (*job["before_script"], *job["script"]):
        done = subprocess.run(
            ["bash", "-c", line], cwd=desk, env=environment(desk), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    artifacts = job["artifacts"]
    assert all((desk / name).exists() for name in (*artifacts["paths"], artifacts["reports"]["junit"]))


@pytest.mark.story
def test_the_hooks_run_in_pre_commit(desk: Path) -> None:
    """Our own definitions, but for where the program comes from: it is the one on the path."""
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    pre_commit = [sys.executable, "-m", "pre_commit"]
    given = environment(desk, PRE_COMMIT_HOME=str(desk / "cache"), GIT_CONFIG_GLOBAL=os.devnull)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=desk, env=given, capture_output=True, text=True, check=False)

    manifest = ROOT / ".pre-commit-hooks.yaml"
    done = run(*pre_commit, "validate-manifest", str(manifest))
    assert done.returncode == 0, done.stdout
    hooks = [{**one, "language": "system"} for one in yaml.safe_load(manifest.read_text("utf-8"))]
    (desk / ".pre-commit-config.yaml").write_text(
        yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]}), "utf-8"
    )
    run("git", "init", "-q")
    run("git", "add", "m.onnx", "parityscope.toml", ".pre-commit-config.yaml")
    done = run(*pre_commit, "run", "--all-files", "--verbose")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parityscope-check" not in done.stdout  # it is for pushes
    run("git", "add", "broken.onnx")
    done = run(*pre_commit, "run", "--all-files")
    assert done.returncode == 1
    assert "broken" in done.stdout
    done = run(*pre_commit, "run", "--all-files", "--hook-stage", "pre-push", "parityscope-check", "--verbose")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 within" in done.stdout
