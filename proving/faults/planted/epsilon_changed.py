"""A normalization runs with another epsilon than the model's: 0.02, 0.05 or 0.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    for node in nodes_of(model, draw, "BatchNormalization", "LayerNormalization"):
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                old, attribute.f = attribute.f, float(draw.choice([0.02, 0.05, 0.1]))
                return f"{node.output[0]} has epsilon {attribute.f:g} in place of {old:g}", (node.output[0],)
    raise NoEffectError("no normalization says its epsilon")


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Another epsilon",
    family="fusion",
    expected="FUS002",
    repair="barrier",
    subjects=("small-conv", "ocr-rec", "minilm-i8"),
    plant=_plant,
)
