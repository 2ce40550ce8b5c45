"""A kernel computes a tile of its output wrongly: a race, a buffer that is too short, a block that is not synchronised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered
from proving.faults.planting import answers
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed, Plant

_KINDS = ("MatMul", "Conv", "Add", "Mul", "Relu", "Tanh")


def _plant(bed: Bed) -> Plant:
    shapes = {name: array.shape for name, array in answers(bed.path, bed.samples[:1], inside=True)[0].items()}

    def edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        import onnx

        outputs = {value.name for value in model.graph.output}
        nodes = [
            node
            for node in model.graph.node
            if node.op_type in _KINDS
            and node.output[0] not in outputs
            and np.prod(shapes.get(node.output[0], ())) >= 64
            and shapes[node.output[0]][-1] >= 4
        ]
        if not nodes:
            raise NoEffectError("no layer is large enough")
        node = nodes[int(draw.integers(len(nodes)))]
        name, shape = node.output[0], shapes[node.output[0]]
        tile = np.ones(shape, np.float32)
        start = int(draw.integers(shape[-1] // 2))
        part = (..., slice(start, start + max(2, shape[-1] // 4)))
        tile[part] = 1 + draw.uniform(-0.9, 0.9, tile[part].shape)
        node.output[0] = f"{name}_right"
        model.graph.initializer.append(onnx.numpy_helper.from_array(tile, f"{name}_tile"))
        place = list(model.graph.node).index(node)
        model.graph.node.insert(place + 1, onnx.helper.make_node("Mul", [f"{name}_right", f"{name}_tile"], [name]))
        return f"a tile of {name} is wrong", (name,)

    return altered(bed, edit)


FAULT = Fault(
    title="A tile of a layer wrong",
    family="fusion",
    expected="FUS003",
    # Where the tensor has one row, factors of their own for some indices are the tile in words.
    accepted=("FUS002",),
    subjects=("small-two", "small-conv", "small-encoder", "small-map", "dnsmos", "pitch"),
    plant=_plant,
)
