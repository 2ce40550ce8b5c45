"""A fused Clip loses its upper bound, or is applied with another one (NVIDIA/TensorRT issue 4606)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, constant, nodes_of
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = next((one for one in nodes_of(model, draw, "Clip") if len(one.input) > 2), None)
    bound = None if node is None else constant(model, node.input[2])
    if node is None or bound is None:
        raise NoEffectError("no Clip has a constant upper bound")
    way = int(draw.integers(3))
    if way == 0:
        node.input[2] = ""
        return f"{node.output[0]} lost its upper bound", (node.output[0],)
    if way == 1:
        node.input[1] = ""
        return f"{node.output[0]} lost its lower bound", (node.output[0],)
    factor = np.float32(draw.choice([0.5, 1.5, 2.0]))
    name = f"{node.output[0]}_other_bound"
    model.graph.initializer.append(onnx.numpy_helper.from_array(bound * factor, name))
    node.input[2] = name
    return f"{node.output[0]} is bounded at {bound * factor:g} in place of {bound:g}", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="A Clip bound lost",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-cls", "lite0", "ocr-rec", "ocr-det"),
    plant=_plant,
)
