"""BatchNormalization was exported in training mode: it takes the statistics of one batch in place of the running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, nodes_of, set_constant
from proving.faults.planting import answers
from proving.faults.records import Fault

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    inside = answers(bed.path, bed.samples[:1], inside=True)[0]

    def edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        node = nodes_of(model, draw, "BatchNormalization")[0]
        values = inside[node.input[0]]
        axes = (0, *range(2, values.ndim))
        set_constant(model, node.input[3], np.asarray(values.mean(axis=axes)))
        set_constant(model, node.input[4], np.asarray(values.var(axis=axes)))
        return f"{node.output[0]} has the statistics of one batch", (node.output[0],)

    return altered(bed, edit)


FAULT = Fault(
    title="Statistics of training",
    family="export",
    expected="FUS003",
    accepted=("FUS002", "EXP001", "EXP003"),
    subjects=("small-conv", "ocr-cls", "ocr-npm-cls", "ocr-rec"),
    plant=_plant,
)
