"""The weights of one output channel are multiplied by a wrong scale, as a per-tensor scale in place of a per-channel one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, constant, nodes_of, set_constant
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    for node in nodes_of(model, draw, "Conv"):
        weight = constant(model, node.input[1])
        if weight is not None and weight.shape[0] > 1:
            channel = int(draw.integers(weight.shape[0]))
            factor = np.float32(draw.choice([0.5, 0.8, 1.5, 2.0]))
            weight[channel] *= factor
            set_constant(model, node.input[1], weight)
            return f"channel {channel} of {node.output[0]} times {factor:g}", (node.output[0],)
    raise NoEffectError("no weights are constant")


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="One channel's weights wrong",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-cls", "ocr-rec", "ocr-det", "ocr-npm-cls"),
    plant=_plant,
)
