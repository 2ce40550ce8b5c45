"""LeakyRelu or HardSigmoid runs with another library's slope."""

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

    node = nodes_of(model, draw, "LeakyRelu", "HardSigmoid")[0]
    for attribute in node.attribute:
        if attribute.name == "alpha":
            old = attribute.f
            attribute.f = float(draw.choice([0.01, 0.05, 0.25, 0.3]))
            return f"{node.output[0]} has slope {attribute.f:g} in place of {old:g}", (node.output[0],)
    node.attribute.append(onnx.helper.make_attribute("alpha", 0.1 if node.op_type == "LeakyRelu" else 1 / 6))
    return f"{node.output[0]} has another slope than its default", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Another slope of LeakyRelu",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-cls", "ocr-rec", "ocr-npm-cls", "ocr-det"),
    plant=_plant,
)
