"""Whole commands over a box that a scene stands in for: what dies, hangs or has no memory stays in the child.

Nothing of TensorRT is executed. The command, its child process and Polygraphy are the real ones; what they import as `tensorrt`
and load as CUDA's libraries is the stand-in.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import parser

from command_line import exit_status
from proving.tensorrt_replay.box import make_box, variables_of
from proving.tensorrt_replay.scenes import Region, make_scene
from test_tensorrt_replay import FUSED, TEXT, product_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Judge = Callable[..., tuple[int, dict[str, Any], str]]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the box's libraries are compiled with gcc")


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Judge:
    """Runs a command on the box; gives its exit code, the study (where one was written) and stderr."""
    onnx.save(parser.parse_model(TEXT), tmp_path / "model.onnx")
    (tmp_path / "samples").mkdir()
    for rows in (1, 2, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
        np.savez(tmp_path / "samples" / f"{rows}.npz", x=x)

    def judging(
        command: str, target: str, faults: dict[str, Any], version: str = "10.13.0.35"
    ) -> tuple[int, dict[str, Any], str]:
        product, number = product_of(version)
        scene = make_scene(
            tmp_path / "scene", tmp_path / "model.onnx", number, faults.pop("regions", FUSED), product=product, **faults
        )
        package = "tensorrt_rtx" if product == "rtx" else product
        box = make_box(str(tmp_path / "box"), str(scene), package)
        for name, value in variables_of(box).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.syspath_prepend(box)
        monkeypatch.delitem(sys.modules, package, raising=False)
        words = [
            *command.split(),
            str(tmp_path / "model.onnx"),
            "--inputs",
            str(tmp_path / "samples"),
            "--candidate",
            target,
        ]
        code = exit_status(*words, "--declared", "f32", "--quiet", "--study", str(tmp_path / "study"))
        document = tmp_path / "study" / "study.json"
        study = json.loads(document.read_text(encoding="utf-8")) if document.exists() else {}
        sys.modules.pop(package, None)  # the stand-in, which the tests that follow would find; the real one comes back
        return code, study, capfd.readouterr().err

    return judging


def skips_of(study: dict[str, Any]) -> dict[str, str]:
    return {skip["what"]: skip["reason"] for skip in study["skipped"]}


def test_a_crash_on_a_sample_keeps_what_was_judged_before(judge: Judge) -> None:
    # The first sample runs twice.
    code, study, _ = judge("compare", "trt", {"faults": {"dies": ["execute", 3]}}, "8.6.1.6")
    assert code == 1
    assert [len(output["per_sample"]) for output in study["outputs"]] == [1]
    skips = skips_of(study)
    assert "killed by SIGSEGV" in skips["sample 2.npz"]
    assert skips["one sample after 2.npz"] == "the candidate's process ended"


def test_a_hang_is_ended_and_keeps_what_was_judged_before(judge: Judge) -> None:
    code, study, _ = judge("compare", "trt?timeout=5", {"faults": {"hangs": ["execute", 4]}}, "rtx")
    assert code == 1
    assert [len(output["per_sample"]) for output in study["outputs"]] == [2]
    assert "took longer than 5 s" in skips_of(study)["sample 3.npz"]


def test_a_profile_that_does_not_cover_a_sample_leaves_the_others(judge: Judge) -> None:
    profiles = [{"x": [[1, 4]] * 3}, {"x": [[3, 4]] * 3}]
    code, study, _ = judge("compare", "trt", {"profiles": profiles})
    assert code == 1
    assert [len(output["per_sample"]) for output in study["outputs"]] == [2]
    (lost,) = [skip for skip in study["skipped"] if skip["what"] == "sample 2.npz"]
    assert "--minShapes=" in lost["fix"]


def test_a_crash_of_the_builder_is_one_error(judge: Judge) -> None:
    code, study, said = judge("compare", "trt", {"faults": {"dies": ["build", 1]}}, "11.4.0.106")
    assert (code, study) == (2, {})
    assert "killed by SIGSEGV on loading the model" in said
    assert "the stand-in dies in build" in said


def test_a_gpu_without_memory_is_one_error(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_MEMORY", "1")
    code, study, said = judge("compare", "trt", {}, "10.13.0.35")
    assert (code, study) == (2, {})
    assert "the GPU has no memory left for a tensor of 16 bytes" in said
    assert "fix:" in said


def test_a_check_of_what_the_engine_does_not_show_is_no_failure(judge: Judge, tmp_path: Path) -> None:
    """The constant that keeps a root from zero is added inside of a kernel, behind squares that overflow before it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,1] y)
      <float much = {300.0}, float small = {1e-5}> {
      [wide] w = Mul(x, much) [square] p = Mul(w, w) [mean] v = ReduceMean<axes = [-1]>(p) [guard] g = Add(v, small)
      [root] r = Sqrt(g) [part] q = Div(v, r) [last] y = Tanh(q) }"""
    onnx.save(parser.parse_model(text), tmp_path / "model.onnx")
    regions = [
        Region(nodes=nodes, type="HALF")
        for nodes in (("wide",), ("square",), ("mean", "guard", "root", "part", "last"))
    ]
    code, study, _ = judge("diagnose", "trt:f16", {"regions": regions})
    assert code == 1
    assert study["findings"][0]["code"] in {"RNG002", "RNG004"}
    assert not [skip for skip in study["skipped"] if "the check itself failed" in skip["reason"]]


@pytest.mark.parametrize(
    ("dies", "shown"),
    [
        (["build unfused", 1], {"a", "b", "c"}),
        (["build unfused", 1, "build showing b", 1], {"a", "c"}),
        (["build unfused", 1, "build by name", 1], set()),
    ],
)
def test_every_tensor_is_compared_but_those_the_builder_dies_of(judge: Judge, dies: list[Any], shown: set[str]) -> None:
    code, study, _ = judge("compare --all-tensors", "trt", {"faults": {"dies": dies}})
    assert code == 1
    assert {row["name"] for row in study["tensors"]} == shown
    lost = {what: reason for what, reason in skips_of(study).items() if what.startswith("tensor ")}
    assert set(lost) == {f"tensor {name}" for name in {"a", "b", "c"} - shown}
    assert all("killed by SIGSEGV" in reason for reason in lost.values())


def test_a_builder_that_refuses_unfused_tensors_is_asked_by_name(judge: Judge) -> None:
    code, study, _ = judge("localize", "trt", {"faults": {"unfused": True}, "refused_marks": ["b"]})
    assert code == 1
    assert sorted(row["name"] for row in study["tensors"]) == ["a", "c", "y"]
    assert any(skip["what"] == "tensor b" and "refuses an engine" in skip["reason"] for skip in study["skipped"])


def test_a_builder_that_dies_of_marks_leaves_the_region_as_one(judge: Judge) -> None:
    code, study, _ = judge("localize", "trt", {"faults": {"dies": ["build by name", 1]}})
    assert code == 1
    first = study["suspects"][0]
    assert (first["site"]["node"], len(first["region"])) == ("cut", 2)
    assert "killed by SIGSEGV" in skips_of(study)["the inside of cut"]
