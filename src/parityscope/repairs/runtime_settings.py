"""Settings of a runtime that change its arithmetic, as lines of code or a command line.

What it changes: how the deployment is built or started: TF32 off, everything in FP32, a precision asked for by its hint, or
accuracy before speed.

Why it repairs: where the model is right and only the arithmetic is lower than was meant, a setting is the smallest repair.
TF32 is on by default in TensorRT and trtexec and off in Polygraphy, so that two tools of one vendor differ on one model.

Risk: none to the function. FP32 instead of TF32 or FP16 is slower (on tensor cores several times).

Cost: speed, as much as the lower arithmetic had gained.

How to undo: take the setting out again.

What the finding says: details "runtime" (onnxruntime-cuda, onnxruntime-tensorrt, onnxruntime-cpu, tensorrt, trtexec,
polygraphy, openvino, torch or cuda) and "change" (tf32_off, f32, f16, bf16 or accuracy). Combinations that a runtime
has no setting for give nothing.

Sources: ONNX Runtime, CUDA and TensorRT execution providers (use_tf32, trt_fp16_enable) and session option
mlas.enable_gemm_fastmath_arm64_bfloat16; NVIDIA TensorRT, BuilderFlag, trtexec --help and the migration guide to 11 (which
keeps TF32 and removed FP16 and BF16 flags); Polygraphy, convert --help; OpenVINO, inference_precision and execution_mode
hints; PyTorch, "TensorFloat-32 on Ampere"; NVIDIA cuBLAS, NVIDIA_TF32_OVERRIDE.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.backends import known_backend
from parityscope.repairs import Advice

if TYPE_CHECKING:
    from parityscope.records import Finding

_BEFORE_11 = "# TensorRT 8 to 10; TensorRT 11 follows the types of the ONNX model: convert those instead\n"
SETTINGS = MappingProxyType(
    {
        ("onnxruntime-cuda", "tf32_off"): 'providers = [("CUDAExecutionProvider", {"use_tf32": "0"})]',
        ("onnxruntime-tensorrt", "tf32_off"): (
            "# the provider has no option of its own for it; NVIDIA's libraries read this variable\n"
            "NVIDIA_TF32_OVERRIDE=0 python serve.py"
        ),
        ("onnxruntime-tensorrt", "f32"): (
            'providers = [("TensorrtExecutionProvider", {"trt_fp16_enable": False, "trt_int8_enable": False})]'
        ),
        ("onnxruntime-tensorrt", "f16"): 'providers = [("TensorrtExecutionProvider", {"trt_fp16_enable": True})]',
        ("onnxruntime-cpu", "f32"): (
            "options = onnxruntime.SessionOptions()\n"
            'options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "0")'
        ),
        ("tensorrt", "tf32_off"): "config.clear_flag(trt.BuilderFlag.TF32)",
        ("tensorrt", "f32"): (
            f"{_BEFORE_11}for flag in (trt.BuilderFlag.FP16, trt.BuilderFlag.BF16, trt.BuilderFlag.TF32):\n"
            "    config.clear_flag(flag)"
        ),
        ("tensorrt", "f16"): f"{_BEFORE_11}config.set_flag(trt.BuilderFlag.FP16)",
        ("tensorrt", "bf16"): f"{_BEFORE_11}config.set_flag(trt.BuilderFlag.BF16)",
        ("trtexec", "tf32_off"): "trtexec --onnx=model.onnx --saveEngine=model.plan --noTF32",
        ("trtexec", "f32"): "trtexec --onnx=model.onnx --saveEngine=model.plan --noTF32",
        ("trtexec", "f16"): f"{_BEFORE_11}trtexec --onnx=model.onnx --saveEngine=model.plan --fp16",
        ("trtexec", "bf16"): f"{_BEFORE_11}trtexec --onnx=model.onnx --saveEngine=model.plan --bf16",
        ("polygraphy", "tf32_off"): "polygraphy convert model.onnx -o model.plan  # without --tf32",
        ("polygraphy", "f32"): "polygraphy convert model.onnx -o model.plan  # without --tf32, --fp16 and --bf16",
        ("polygraphy", "f16"): f"{_BEFORE_11}polygraphy convert model.onnx -o model.plan --fp16",
        ("cuda", "tf32_off"): "NVIDIA_TF32_OVERRIDE=0 python serve.py",
    }
)


def settings_of(change: str) -> dict[str, str]:
    """The lines of every runtime that has a setting for a change ("tf32_off"), by runtime."""
    return {runtime: lines for (runtime, wanted), lines in SETTINGS.items() if wanted == change}


def _write_settings(finding: Finding) -> str | None:
    wanted = (str(finding.details.get("runtime", "")), str(finding.details.get("change", "")))
    runtime = known_backend(wanted[0])
    return SETTINGS.get(wanted) or (runtime.settings.get(wanted[1]) if runtime is not None else None)


ADVICE = Advice(
    name="runtime_settings",
    title="Settings of a runtime that change its arithmetic",
    risk="none to the function; a higher precision is slower",
    cost="speed, as much as the lower arithmetic had gained",
    write=_write_settings,
)
