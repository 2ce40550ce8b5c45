"""A kernel of another function was chosen, Softsign for Tanh, say: no table of known mistakes has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    others = {
        "Tanh": "Softsign",
        "Sigmoid": "HardSigmoid",
        "Sin": "Tanh",
        "Erf": "Tanh",
        "Relu": "Softplus",
        "Sqrt": "Abs",
    }
    node = nodes_of(model, draw, *others)[0]
    old, node.op_type = node.op_type, others[node.op_type]
    del node.attribute[:]
    return f"{node.output[0]} is computed by {node.op_type} in place of {old}", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Another function",
    family="fusion",
    expected="FUS003",
    # HardSigmoid may be what another form of an activation is known as.
    accepted=("FUS002",),
    subjects=("small-two", "small-many", "small-rows", "small-map", "ocr-cls", "ocr-rec", "vad-18", "pitch"),
    plant=_plant,
)
