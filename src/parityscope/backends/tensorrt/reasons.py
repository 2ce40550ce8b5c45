"""What a build or a run fails with, in TensorRT's words -> what that means and what to do.

Each pattern is of a line that users quoted in public (the number behind it, of NVIDIA/TensorRT where no repository is named).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_PLUGIN = (
    r"(?:could not find plugin|[Cc]annot find plugin|[Pp]lugin not found|IPluginCreator not found)[:,]?\s*"
    r"(?:are the .*|in Plugin Registry.*|(\S+?),?\s+version:? (\S+?)\b.*)?"
)

_WRITE_TYPES = (
    "give a file that holds its types (parityscope repair MODEL --candidate TARGET --inputs DATA -o typed.onnx)"
)
# (what the log says, what that means, what to do); the first that fits is told.
_REASONS: tuple[tuple[str, str, str], ...] = (
    (  # 3882; Requested size: yuvraj108c/ComfyUI-Upscaler-Tensorrt 49; insufficient memory: VoltaML 15
        r"Error Code 2: OutOfMemory|Error Code 1: Cuda Runtime \(out of memory\)|insufficient memory on requested size",
        "the GPU has not enough memory for it",
        "end what else uses the GPU, give smaller largest shapes (shapes=), or less to a kernel (workspace=1GiB)",
    ),
    (  # 840, 948
        r"Cuda Error in (?:\w+::)*allocate: 2|std::bad_alloc|FAILED_ALLOCATION",
        "there is not enough memory for it",
        "end what else uses the GPU, give smaller largest shapes (shapes=), or less to a kernel (workspace=1GiB)",
    ),
    (  # 955, NVIDIA/Stable-Diffusion-WebUI-TensorRT 315
        NO_PLUGIN,
        "a plug-in is not loaded",
        "name its library: plugins=libmyplugin.so",
    ),
    (  # NVIDIA/Model-Optimizer 70, TensorRT-LLM 1428
        r"Networks with FP8 (?:Q/DQ layers|precision) require hardware with FP8 support",
        "this GPU has no FP8 (compute capability 8.9 is the first)",
        "quantize the model to INT8, or run it on an Ada, Hopper or Blackwell GPU",
    ),
    (  # 3157
        r"Networks with QuantizeLayer/DequantizeLayer layers require hardware with Int8 support",
        "this GPU has no INT8 (compute capability 7.5 is the first)",
        "give the model before it was quantized, or run it on a Turing GPU or newer",
    ),
    (  # 1823, 3277
        r"(\w+) precision has been set for a layer or layer output, but \w+ is not configured in the builder",
        "the file asks for {0}, and a weakly typed build allows only what its flags name",
        "allow it (trt:f16, trt:bf16, trt:int8), or use typing=strong (TensorRT 9 and newer)",
    ),
    (  # NVIDIA/TensorRT-RTX 2
        r"condition: !config\.getFlag\(BuilderFlag::k(\w+)\)",
        "a strongly typed network takes no flag {0}: its types are the file's",
        f"leave the precision out; {_WRITE_TYPES}",
    ),
    (  # TensorRT-RTX 1.7.1, run without a GPU with BuilderFlag.REFIT
        r"graph_jit\.cpp:\d+: CHECK\(status == CUDA_SUCCESS\) failed",
        "it takes a GPU to build this, as engines that can be refitted do",
        "build it on a machine with one, or leave refit=on out",
    ),
    (  # onnx/onnx-tensorrt 400, 563
        r"Unsupported ONNX data type: (\w+)|[Uu]nsupported datatype \(\d+\) when importing",
        "this TensorRT does not have a type that the file has",
        "write the file in FP32 or FP16, or use a newer TensorRT (BF16 and strong typing from 9, INT64 from 10)",
    ),
)


def explain_failure(lines: Iterable[str]) -> tuple[str, str]:
    """(what it means, what to do) of the first line whose reason is known; ("", "") if none is."""
    for line in lines:
        for pattern, means, fix in _REASONS:
            if match := re.search(pattern, line):
                return means.format(*match.groups()), fix
    return "", ""
