"""Mean and variance, or scale and shift, of a BatchNormalization are taken for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, constant, nodes_of
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    node = nodes_of(model, draw, "BatchNormalization")[0]
    first, second = (1, 2) if draw.random() < 0.5 else (3, 4)
    one, other = constant(model, node.input[first]), constant(model, node.input[second])
    if one is None or other is None or (first == 3 and one.min() <= 0):
        raise NoEffectError("they cannot be exchanged")
    node.input[first], node.input[second] = node.input[second], node.input[first]
    what = "scale and shift" if first == 1 else "mean and variance"
    return f"{what} of {node.output[0]} exchanged", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Statistics of a BatchNormalization exchanged",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-cls", "lite0", "ocr-rec"),
    plant=_plant,
)
