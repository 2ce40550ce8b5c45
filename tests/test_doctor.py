"""`parityscope doctor`: what each runtime really computes in, and what is known to be bad, from planted facts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import onnx
import pytest

from command_line import exit_status
from parityscope.backends import arithmetic_of
from parityscope.backends.gpu import Driver, Gpu, find_driver, none_because
from parityscope.installed import Machine, known_problems

if TYPE_CHECKING:
    from pathlib import Path

TINY = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
PLAIN = Machine(versions={"onnxruntime": "1.31.1"}, backends=frozenset({"ort", "openvino"}))
HOPPER = Machine(
    versions={"onnxruntime-gpu": "1.31.0", "torch": "2.13.0", "tensorrt": "10.5.0"},
    capability=(9, 0),
    driver_cuda="12.4",
    backends=frozenset({"ort", "torch", "trt"}),
    told={
        "ort": {"providers": "CUDAExecutionProvider, CPUExecutionProvider"},
        "torch": {
            "gpu": "NVIDIA H200 (capability 9.0)",
            "default TF32 of products": "off",
            "default TF32 of convolutions": "on",
        },
        "trt": {"can run": "yes"},
    },
    linked={"onnxruntime-gpu": 12, "torch": 12},
)


def computes(machine: Machine) -> dict[str, str]:
    return {one.target: one.computes for one in arithmetic_of(machine)}


@pytest.mark.parametrize(
    ("features", "f16", "bf16"),
    [
        ({"avx2"}, "f32", "f32"),
        ({"avx512f", "avx512_bf16"}, "bf16", "bf16"),
        ({"avx512_bf16", "avx512_fp16"}, "f16", "bf16"),
        ({"amx_bf16", "amx_tile"}, "bf16", "bf16"),
    ],
)
def test_a_hint_is_executed_in_what_the_cpu_has(features: set[str], f16: str, bf16: str) -> None:
    found = computes(replace(PLAIN, features=frozenset(features)))
    assert (found["openvino:f16"], found["openvino:bf16"], found["openvino"]) == (f16, bf16, "f32")


def test_paths_on_a_gpu_are_told_only_where_they_exist() -> None:
    assert {target for target in computes(PLAIN) if "cuda" in target or target == "trt"} == set()
    found = {one.target: one for one in arithmetic_of(HOPPER)}
    assert set(found) == {"ort", "ort?device=cuda", "torch", "torch?device=cuda", "trt"}
    assert "products off, cuDNN on" in found["torch?device=cuda"].because
    assert found["ort"].tf32 == "none"


def test_tf32_is_what_the_gpu_and_the_environment_allow() -> None:
    turing = arithmetic_of(replace(HOPPER, capability=(7, 5)))
    assert {one.tf32 for one in turing} == {"none"}
    off = {one.target: one for one in arithmetic_of(replace(HOPPER, variables={"NVIDIA_TF32_OVERRIDE": "0"}))}
    assert "whatever a program asks for" in off["trt"].because


def test_nothing_is_known_against_a_plain_machine() -> None:
    assert known_problems(PLAIN) == ()
    assert known_problems(HOPPER) == ()
    extensions = replace(PLAIN, versions={"onnxruntime": "1.31.1", "onnxruntime-extensions": "0.14"})
    assert known_problems(extensions) == ()
    for value in ("not set", "0"):
        assert known_problems(replace(PLAIN, variables={"NVIDIA_TF32_OVERRIDE": value})) == ()


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(PLAIN, versions={"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}), "installed together"),
        (replace(HOPPER, versions={"tensorrt": "10.12.0.36"}), "upper bound of a Clip"),
        (replace(HOPPER, versions={"tensorrt-cu12": "10.13.2.6"}), "upper bound of a Clip"),
        (replace(HOPPER, linked={"torch": 13}), "torch was built for CUDA 13"),
        (replace(PLAIN, variables={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}), "products take TF32"),
        (replace(PLAIN, variables={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}), "products in less"),
        (replace(PLAIN, variables={"NVIDIA_TF32_OVERRIDE": "off"}), "NVIDIA_TF32_OVERRIDE is 'off': only 0 is known"),
        (replace(PLAIN, variables={"NVIDIA_TF32_OVERRIDE": ""}), "only 0 is known"),
    ],
)
def test_what_is_known_to_be_bad_is_said_with_source_and_fix(machine: Machine, words: str) -> None:
    # Of one version several faults may be known.
    (found,) = [one for one in known_problems(machine) if words in one.problem]
    assert found.source
    assert found.fix


def test_the_driver_is_asked_or_its_absence_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_driver()
    assert bool(found.gpus) != bool(found.problem)
    for gpu in found.gpus:
        assert gpu.name
        assert gpu.nbytes > 0


def test_the_document_holds_all_of_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    h200 = Gpu(name="NVIDIA H200", capability=(9, 0), nbytes=141 << 30)
    monkeypatch.setattr("parityscope.backends.gpu.find_driver", lambda: Driver(cuda="12.4", gpus=(h200,)))
    assert exit_status("doctor", "--format", "json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["gpu"]["gpus"][0]["capability"] == [9, 0]
    assert found["facts"]["compute capability"] == "9.0"
    assert "onnxruntime" in found["packages"]
    assert found["arithmetic"][0]["target"] == "ort"
    exit_status("doctor")
    printed = capfd.readouterr().out
    assert "GPU: NVIDIA H200, capability 9.0, driver for CUDA 12.4" in printed
    assert "what each really computes in:" in printed


# What is left where one of two packages that share a folder was removed is imported as a module with nothing in it.
BROKEN = ("onnxruntime", "openvino", "tensorrt_rtx", "tritonclient")


def test_packages_that_are_there_and_broken_are_problems_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in BROKEN:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert exit_status("doctor", "--format", "json") == 0
    found = json.loads(capfd.readouterr().out)
    states = found["backends"]
    assert "onnxruntime is installed and broken" in states["ort"]["problem"]
    assert states["ort"]["fix"].endswith("pip install --force-reinstall onnxruntime")
    for name in ("ort", "sim", "openvino", "trt"):
        assert states[name]["problem"], name
        assert states[name]["fix"], name
    assert not states["command"]["problem"]
    onnx.save(onnx.parser.parse_model(TINY), tmp_path / "m.onnx")
    assert exit_status("compare", str(tmp_path / "m.onnx"), "--candidate", "sim:f16") == 2
    assert "is installed and broken" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("status", "told", "visible", "said"),
    [
        (100, "no CUDA-capable device is detected", None, "there is no NVIDIA GPU"),
        (0, "no error", None, "there is no NVIDIA GPU"),
        (100, "no CUDA-capable device is detected", "", "CUDA_VISIBLE_DEVICES is ''"),
        (0, "no error", "7", "CUDA_VISIBLE_DEVICES is '7'"),
        (803, "system has unsupported display driver", "0", "display driver (CUDA error 803)"),
    ],
)
def test_why_there_is_no_gpu(status: int, told: str, visible: str | None, said: str) -> None:
    assert said in none_because(status, told, visible)


def test_variables_that_decide_what_is_found_are_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/cuda/lib64")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert exit_status("doctor", "--format", "json") == 0
    told = json.loads(capfd.readouterr().out)["variables"]
    assert told["CUDA_VISIBLE_DEVICES"] == ""
    assert told["LD_LIBRARY_PATH"] == "/opt/cuda/lib64"
    assert "LD_PRELOAD" not in told
    exit_status("doctor")
    assert "CUDA_VISIBLE_DEVICES is set: ''" in capfd.readouterr().out


@pytest.mark.story
def test_what_was_prepared_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "loops"))
    parityscope = [sys.executable, "-m", "parityscope"]
    asked = [*parityscope, "--lang", "zh", "doctor", "--prepare"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert len(said.splitlines()) == 3  # byte code, loops, and a diagnosis
    assert "首次诊断" in said
    assert "prepared" not in said
    made = {path.name for path in (tmp_path / "loops").rglob("*.nb[ic]")}
    assert {name.partition(".")[2].partition("-")[0] for name in made} == {
        "measure_block",
        "replay_block",
        "round_bits",
    }
    model, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    for path, kind in ((model, "Sigmoid"), (other, "Tanh")):
        text = TINY.replace("[2]", "[2, 65536]").replace("Neg", kind)
        onnx.save(onnx.parser.parse_model(text), path)
    words = ["diagnose", str(model), "--candidate", f"ort?model={other}", "--study", str(tmp_path / "study"), "--quiet"]
    assert subprocess.run([*parityscope, *words], capture_output=True, check=False).returncode == 1
    assert {path.name for path in (tmp_path / "loops").rglob("*.nb[ic]")} == made
