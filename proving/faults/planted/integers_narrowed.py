"""A lookup by int64 goes through int32 or int16 in the deployment, and large numbers wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = next(one for one in nodes_of(model, draw, "Gather") if one.input[1] == "input_ids")
    bits = int(draw.choice([7, 8]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1 << bits, np.int64), "wrap"))
    model.graph.node.insert(0, onnx.helper.make_node("Mod", ["input_ids", "wrap"], ["ids_narrow"]))
    node.input[1] = "ids_narrow"
    return f"token numbers wrap at {1 << bits}", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Integers narrowed",
    family="types",
    expected="FUS003",
    accepted=("FUS002", "BND002"),
    subjects=("small-encoder",),
    plant=_plant,
)
