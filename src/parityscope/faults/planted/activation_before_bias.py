"""A fused kernel applies the activation before it adds the bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.faults.changing import altered, constant, nodes_of
from parityscope.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from parityscope.faults.records import Bed, Plant

__all__ = ["FAULT"]


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    for node in nodes_of(model, draw, "Relu", "Tanh", "Sigmoid"):
        adding = next((one for one in model.graph.node if node.input[0] in one.output), None)
        if adding is None or adding.op_type != "Add" or constant(model, adding.input[1]) is None:
            continue
        if sum(node.input[0] in one.input for one in model.graph.node) != 1:
            continue
        source, between, result = adding.input[0], f"{node.output[0]}_early", node.output[0]
        node.input[0], node.output[0] = source, between
        adding.input[0], adding.output[0] = between, result
        place = list(model.graph.node).index(adding)
        moved = onnx.NodeProto()
        moved.CopyFrom(node)
        model.graph.node.remove(node)
        model.graph.node.insert(place, moved)
        return f"{result}: the activation is applied before the bias", (result,)
    raise NoEffectError("no activation stands behind a bias")


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Activation before the bias",
    family="fusion",
    expected="FUS002",
    subjects=("small-rows", "ocr-rec", "vad-18", "pitch"),
    plant=_plant,
)
