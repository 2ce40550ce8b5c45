"""The lines of docs/teams.md for MLflow, run as they stand there against a store in a local file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from parityscope.testing.networks import write_network

PAGE = Path(__file__).parent.parent / "docs" / "teams.md"
TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { y = Tanh(x) }'


def block(package: str) -> str:
    (found,) = re.findall(
        rf"^```python\n(import {package}\n.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return str(found)


def test_both_take_ten_lines() -> None:
    assert all(len([line for line in block(one).splitlines() if line]) <= 10 for one in ("mlflow", "wandb"))


@pytest.mark.filterwarnings("default")  # mlflow's own
def test_a_diagnosis_is_a_run_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
    write_network(tmp_path / "model.onnx", TEXT, {})
    (tmp_path / "samples").mkdir()
    np.savez(tmp_path / "samples" / "0.npz", x=np.linspace(-1, 1, 16, dtype=np.float32)[None])
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    exec(compile(block("mlflow"), str(PAGE), "exec"), {})  # noqa: S102 - our own page
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.params == {"candidate": "sim:f16", "verdict": "within"}
    assert 0 < run.data.metrics["rel_l2/y"] < 1e-2
    names = {one.path for one in mlflow.MlflowClient().list_artifacts(run.info.run_id, "parityscope")}
    assert {"parityscope/study.json", "parityscope/report.html"} <= names
