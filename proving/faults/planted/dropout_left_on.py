"""The model was exported in training mode: a dropout is still in the graph, and one mask of it was traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered
from proving.faults.planting import answers
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    shapes = {name: array.shape for name, array in answers(bed.path, bed.samples[:1], inside=True)[0].items()}
    rate = float(bed.draw.choice([0.1, 0.2, 0.5]))

    def edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        import onnx

        names = {value.name for value in model.graph.output}
        kinds = {"Relu", "Tanh", "Add", "Sigmoid", "LeakyRelu"}
        nodes = [node for node in model.graph.node if node.op_type in kinds and node.output[0] in shapes]
        nodes = [node for node in nodes if node.output[0] not in names and np.prod(shapes[node.output[0]]) >= 32]
        if not nodes:
            raise NoEffectError("there is no activation")
        node = nodes[int(draw.integers(len(nodes)))]
        name = node.output[0]
        kept = (draw.random(shapes[name]) >= rate) / (1 - rate)
        model.graph.initializer.append(onnx.numpy_helper.from_array(kept.astype(np.float32), f"{name}_mask"))
        node.output[0] = f"{name}_all"
        place = list(model.graph.node).index(node)
        model.graph.node.insert(place + 1, onnx.helper.make_node("Mul", [f"{name}_all", f"{name}_mask"], [name]))
        return f"dropout of {rate:g} at {name}", (name,)

    return altered(bed, edit)


FAULT = Fault(
    title="Dropout left on",
    family="export",
    expected="FUS003",
    accepted=("FUS002", "EXP001", "EXP003"),
    subjects=("small-two", "small-rows", "small-encoder", "small-conv", "pitch"),
    plant=_plant,
)
