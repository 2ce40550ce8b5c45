"""`parityscope doctor`: what each runtime really computes in, and what is known to be bad, from planted facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from parityscope.backends._gpu import Driver, Gpu, find_driver
from parityscope.cli import main
from parityscope.installed import Machine, arithmetic_of, known_problems

PLAIN = Machine(versions={"onnxruntime": "1.31.1"}, backends=frozenset({"ort", "openvino"}))
HOPPER = Machine(
    versions={"onnxruntime-gpu": "1.22.0", "torch": "2.13.0", "tensorrt": "10.9.0"},
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
    assert known_problems(replace(PLAIN, variables={"NVIDIA_TF32_OVERRIDE": "not set"})) == ()


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(PLAIN, versions={"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}), "installed together"),
        (replace(HOPPER, versions={"tensorrt": "10.12.0.36"}), "upper bound of a Clip"),
        (replace(HOPPER, versions={"tensorrt-cu12": "10.13.2.6"}), "upper bound of a Clip"),
        (replace(HOPPER, linked={"torch": 13}), "torch was built for CUDA 13"),
        (replace(PLAIN, variables={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}), "products take TF32"),
        (replace(PLAIN, variables={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}), "products in less"),
    ],
)
def test_what_is_known_to_be_bad_is_said_with_source_and_fix(machine: Machine, words: str) -> None:
    (found,) = known_problems(machine)
    assert words in found.problem
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
    monkeypatch.setattr("parityscope.backends._gpu.find_driver", lambda: Driver(cuda="12.4", gpus=(h200,)))
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--format", "json"])
    assert ended.value.code == 0
    found = json.loads(capfd.readouterr().out)
    assert found["gpu"]["gpus"][0]["capability"] == [9, 0]
    assert found["facts"]["compute capability"] == "9.0"
    assert "onnxruntime" in found["packages"]
    assert found["arithmetic"][0]["target"] == "ort"
    with pytest.raises(SystemExit):
        main(["doctor"])
    printed = capfd.readouterr().out
    assert "GPU: NVIDIA H200, capability 9.0, driver for CUDA 12.4" in printed
    assert "what each really computes in:" in printed
