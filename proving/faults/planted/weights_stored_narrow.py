"""The converter stored the weights in BF16 and computes in FP32."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, constant, set_constant
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import ml_dtypes

    del draw
    count = 0
    for one in model.graph.initializer:
        values = constant(model, one.name)
        if values is not None and values.dtype == np.float32 and values.ndim >= 2:
            set_constant(model, one.name, values.astype(ml_dtypes.bfloat16).astype(np.float32))
            count += 1
    if not count:
        raise NoEffectError("no weights are initializers")
    return f"{count} weights are stored in bfloat16", ()


def _plant(bed: Bed) -> Plant:
    # A file of the candidate's own shows it: then the weights are to be told, and what they were rounded to.
    return replace(altered(bed, _edit), said="rounded to bfloat16")


FAULT = Fault(
    title="Weights stored in a narrower type",
    family="types",
    expected="ACC001",
    subjects=("small-two", "small-conv", "small-rows", "small-encoder", "vad-18", "ocr-cls"),
    plant=_plant,
)
