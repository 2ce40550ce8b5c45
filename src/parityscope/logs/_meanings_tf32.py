"""Lines of TensorRT logs about TF32: who has it on, and who switched it off."""

from __future__ import annotations

from parityscope.logs.records import Meaning

_ISSUE = "https://github.com/NVIDIA/TensorRT/issues"

TF32 = (
    Meaning(
        name="TF32 on by default (trtexec)",
        hint="TF32 is enabled by default",
        pattern=r"TF32 is enabled by default",
        effect="may harm",
        means="matrix products and convolutions may round their inputs to 10 bits (TF32)",
        why="each such product has a relative error of about 3e-4 where FP32 has 3e-7; Polygraphy has TF32 off by "
        "default, so the same model gives two answers with NVIDIA's two tools",
        code="ACC201",
        role="contributing",
        fix="build with TF32 off and compare again: an error that stays is not TF32's",
        command="trtexec --onnx=model.onnx --noTF32",
        source=f"{_ISSUE}/3180",
    ),
    Meaning(
        name="TF32 off by default (Polygraphy)",
        hint="TF32 is disabled by default",
        pattern=r"TF32 is disabled by default",
        effect="harmless",
        means="FP32 products are FP32",
        why="but trtexec and the raw builder have TF32 on by default: an engine of theirs is another program",
        source=f"{_ISSUE}/4492",
    ),
    Meaning(
        name="no TF32 in this GPU",
        hint="kTF32 is set but hardware does not support TF32",
        pattern=r"kTF32 is set but hardware does not support TF32",
        effect="harmless",
        means="the flag has no effect: FP32 products are FP32",
        why="GPUs before compute capability 8.0 have no TF32",
        source="https://github.com/lyuwenyu/RT-DETR/issues/47",
    ),
    Meaning(
        name="TF32 switched off by the environment",
        hint="NVIDIA_TF32_OVERRIDE=0 but",
        pattern=r"NVIDIA_TF32_OVERRIDE=0 but",
        effect="may harm",
        means="TF32 was asked for, and the environment variable NVIDIA_TF32_OVERRIDE=0 switched it off for this build",
        why="FP32 products of this engine are FP32; a build without the variable makes another one",
        code="ACC205",
        fix="set the variable in every place that builds and runs, or in none",
    ),
    Meaning(
        name="TF32 override differs from the build's",
        hint="was not 0 when engine was built",
        pattern=r"was not 0 when engine was built",
        effect="may harm",
        means="NVIDIA_TF32_OVERRIDE=0 is set here and was not when the engine was built with TF32",
        why="its kernels were chosen for TF32: what they compute here is not what was tested there",
        code="ACC205",
        role="contributing",
        fix="unset the variable, or build the engine with TF32 off",
        command="trtexec --onnx=model.onnx --noTF32 --saveEngine=model.plan",
    ),
    Meaning(
        name="TF32 override of an unknown value",
        hint="NVIDIA_TF32_OVERRIDE set to unrecognized value",
        pattern=r"NVIDIA_TF32_OVERRIDE set to unrecognized value: \"?([^\"]*)",
        effect="may harm",
        means="the environment variable NVIDIA_TF32_OVERRIDE has a value that TensorRT does not know, and is without effect",
        why="TF32 is then as it was asked for in the build",
        code="ACC205",
        fix="write NVIDIA_TF32_OVERRIDE=0, or unset it",
    ),
)
