"""Options of the backend `ort` that say how it runs: providers with every switch explicit, IO binding, determinism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest

from parityscope.backends import Capture, backend_named
from parityscope.backends.contract import check_backend
from parityscope.backends.onnxruntime_providers import check_loaded, providers_of
from parityscope.backends.onnxruntime_sessions import open_path
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import Sample, load_model
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.case import Model

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 64] x) => (float[N, 64] y, bfloat16[N, 64] half) {
    a = MatMul(x, w)  y = Tanh(a)  half = Cast<to = 16>(a) }"""
SAMPLE = Sample(index=0, name="first", arrays={"x": np.random.default_rng(76).normal(size=(4, 64)).astype(np.float32)})
RTX = "NvTensorRTRTXExecutionProvider"
CUDA, TENSORRT, CPU = "CUDAExecutionProvider", "TensorrtExecutionProvider", "CPUExecutionProvider"


@pytest.fixture
def model(tmp_path: Path) -> Model:
    built = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(77).normal(size=(64, 64)).astype(np.float32)
    built.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(built, tmp_path / "m.onnx")
    return load_model(tmp_path / "m.onnx")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of ONNX Runtime that says it has all three providers; nothing is run with it."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, RTX, CUDA, CPU])
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)


def run(model: Model, text: str) -> Mapping[str, np.ndarray]:
    with open_target(model, parse_target(text), Capture()) as session:
        return {name: np.array(array) for name, array in session.run(SAMPLE).items()}


@pytest.mark.parametrize("option", ["io_binding=on", "deterministic=on", "io_binding=on&optimization=disabled"])
def test_binding_and_determinism_keep_the_contract_and_the_bits(model: Model, option: str) -> None:
    check_backend(backend_named("ort"), model, SAMPLE, parse_target(f"ort?{option}"))
    plain, other = run(model, "ort"), run(model, f"ort?{option}")
    assert {name: array.tobytes() for name, array in other.items()} == {
        name: array.tobytes() for name, array in plain.items()
    }
    assert other["half"].dtype.name == "bfloat16"


def test_every_switch_of_cuda_is_set(gpu: None) -> None:
    found = providers_of(parse_target("ort?device=cuda:1&cudnn_conv_algo_search=heuristic&io_binding=on"))
    settings = {"device_id": "1", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
    assert found.names == [(CUDA, settings), CPU]
    assert found.bound == "cuda:1"
    assert found.environment["tf32"] == "off"
    assert providers_of(parse_target("ort?device=cuda&tf32=on")).names[0][1]["use_tf32"] == "1"


def test_tensorrt_takes_a_precision_as_a_flag_and_tf32_only_as_it_is(
    gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParityError, match="no switch for TF32"):
        providers_of(parse_target("ort?device=tensorrt"))
    on = providers_of(parse_target("ort:f16?device=tensorrt&tf32=on"))
    assert on.names == [
        (TENSORRT, {"device_id": "0", "trt_fp16_enable": "1"}),
        (CUDA, {"device_id": "0", "use_tf32": "1"}),
        CPU,
    ]
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    off = providers_of(parse_target("ort:bf16?device=tensorrt"))
    assert off.names[0][1] == {"device_id": "0", "trt_bf16_enable": "1"}
    with pytest.raises(ParityError, match="switches TF32 off"):
        providers_of(parse_target("ort?device=tensorrt&tf32=on"))


def test_switches_of_the_tensorrt_providers_go_by_their_own_names(gpu: None) -> None:
    switches = "trt_min_subgraph_size:5,trt_profile_min_shapes:x:1x3x8x8"
    found = providers_of(parse_target(f"ort?provider=tensorrt:1&tf32=on&provider_options={switches}"))
    settings = {"device_id": "1", "trt_min_subgraph_size": "5", "trt_profile_min_shapes": "x:1x3x8x8"}
    assert found.names[0] == (TENSORRT, settings)
    assert found.environment["trt_min_subgraph_size"] == "5"
    rtx = providers_of(parse_target("ort?provider=tensorrt-rtx&tf32=on&provider_options=nv_max_workspace_size:4096"))
    assert rtx.names[0] == (RTX, {"device_id": "0", "nv_max_workspace_size": "4096"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ort?provider=tensorrt&device=cuda", "different things"),
        ("ort?provider=tensorrt&tf32=on&provider_options=trt_min_subgraph_sise:5", "no switch"),
        ("ort?provider=tensorrt&tf32=on&provider_options=trt_fp16_enable:1", "it is the target's precision"),
        ("ort?device=cuda&provider_options=trt_dla_core:0", "those of TensorRT"),
        ("ort:f16?provider=tensorrt-rtx&tf32=on", "takes types from the file"),
        ("ort?device=tpu", "no device 'tpu'"),
        ("ort?device=cuda:x", "no device 'cuda:x'"),
        ("ort?cudnn_conv_algo_search=default", "cuDNN is not used on a CPU"),
        ("ort?device=cuda&cudnn_conv_algo_search=best", "'best' is not known"),
        ("ort?io_binding=yes", "'yes' is not known"),
        ("ort?tf32=on", "CUDA devices only"),
    ],
)
def test_what_has_no_meaning_is_refused(gpu: None, text: str, problem: str) -> None:
    with pytest.raises(ParityError) as refusal:
        providers_of(parse_target(text))
    assert problem in refusal.value.problem
    assert refusal.value.fix


def test_a_provider_that_is_not_there_is_named() -> None:
    if TENSORRT in onnxruntime.get_available_providers():
        pytest.skip("this build has the TensorRT provider")
    for text in ("ort?device=tensorrt&tf32=on", "ort?provider=tensorrt&tf32=on"):
        with pytest.raises(ParityError, match="no TensorRT provider") as refusal:
            providers_of(parse_target(text))
        assert "onnxruntime-gpu" in refusal.value.fix
    with pytest.raises(ParityError, match="no TensorRT-RTX provider") as refusal:
        providers_of(parse_target("ort?provider=tensorrt-rtx&tf32=on"))
    assert "trt?product=rtx" in refusal.value.fix


@pytest.mark.parametrize("option", ["io_binding=on", "cudnn_conv_algo_search=default", "deterministic=on"])
def test_on_a_gpu_the_options_give_the_same_product(model: Model, option: str) -> None:
    if CUDA not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no CUDA provider")
    plain, other = run(model, "ort?device=cuda"), run(model, f"ort?device=cuda&{option}")
    assert np.array_equal(plain["y"], other["y"])


def test_a_provider_that_does_not_load_is_no_run_on_the_cpu(tmp_path: Path) -> None:
    # ONNX Runtime leaves a provider out that it cannot load, and goes on; one that this build lacks is left out in the same way.
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has the provider")
    path = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    asked = [(CUDA, {"device_id": "0"}), CPU]
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(
            ParityError, match="could not load CUDAExecutionProvider and would run on CPUExecutionProvider"
        ) as e,
    ):
        open_path(path, outputs=["y"], providers=asked)
    assert "parityscope doctor" in e.value.fix
    check_loaded([CPU], [CPU])
    check_loaded([(CUDA, {}), CPU], [CUDA, CPU])
