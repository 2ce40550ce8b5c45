"""A fused kernel forgets the bias of a convolution or a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, constant, nodes_of, set_constant
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    for node in nodes_of(model, draw, "Conv", "Gemm", "Add"):
        name = node.input[1] if node.op_type == "Add" else "".join(node.input[2:3])
        bias = constant(model, name)
        if bias is not None and bias.ndim == 1 and np.abs(bias).max() > 0:
            set_constant(model, name, np.zeros_like(bias))
            return f"{node.output[0]} has no bias", (node.output[0],)
    raise NoEffectError("no bias is constant")


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="A bias dropped",
    family="fusion",
    expected="FUS002",
    repair="barrier",
    subjects=("small-conv", "small-two", "small-rows", "vad-seq", "dnsmos"),
    plant=_plant,
)
