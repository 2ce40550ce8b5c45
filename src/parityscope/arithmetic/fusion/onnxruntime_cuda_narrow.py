"""As `onnxruntime-cuda`, with depthwise convolutions that add up in float16.

cuDNN chooses a kernel for each layer, on the machine and for the shape at hand, and some of its depthwise ones keep their
sums in the type of the tensors (`arithmetic.accumulating`). Which do so no graph tells. Measured per tensor on an NVIDIA
H200, sums in FP32 (`onnxruntime-cuda`) fit the three PP-OCRv4 networks better on the whole; this profile is the upper
estimate beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.accumulating import is_depthwise
from parityscope.arithmetic.fusion import Profile
from parityscope.arithmetic.fusion.onnxruntime_cuda import PROFILE as WIDE

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion import Fusion

__all__ = ["PROFILE"]


def _predict(model: ir.Model, precision: str) -> Fusion | None:
    fusion = WIDE.predict(model, precision)
    if fusion is None or precision != "f16":
        return fusion
    narrow = {str(node.outputs[0].name) for node in model.graph.all_nodes() if is_depthwise(node)}
    return replace(
        fusion,
        kernels=tuple(
            kernel if narrow.isdisjoint(kernel.values) else replace(kernel, accumulator=precision)
            for kernel in fusion.kernels
        ),
    )


PROFILE = Profile(
    name="onnxruntime-cuda-narrow",
    title="ONNX Runtime on CUDA, depthwise convolutions in float16 throughout",
    predict=_predict,
)
