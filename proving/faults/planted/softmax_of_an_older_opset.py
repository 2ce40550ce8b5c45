"""Softmax along another axis than the model's: before opset 13 its default was axis 1, and everything behind it was flattened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = nodes_of(model, draw, "Softmax")[0]
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("axis", 1))
    return f"{node.output[0]} is taken along axis 1", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Softmax of an older opset",
    family="export",
    expected="FUS002",
    accepted=("FUS003", "EXP001", "EXP003"),
    subjects=("small-encoder", "minilm-i8", "ocr-rec"),
    plant=_plant,
)
