"""A kernel takes its scale from the place of a row in the batch: row 0 is right, the others are not (issue 4813)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import altered
from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    start, factor = int(bed.draw.integers(1, 5)), float(bed.draw.choice([0.5, 0.9, 1.1, 2.0]))
    if bed.draw.random() < 0.5:
        line = f"outputs[names[0]][{start}:] *= np.float32({factor})"
        return Plant(words=f"a program scales rows from {start} on by {factor:g}", candidate=program(bed, after=line))

    def edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        import onnx

        del draw
        scale = np.ones((6, 1), np.float32)
        scale[start:] = factor
        model.graph.initializer.append(onnx.numpy_helper.from_array(scale, "row_scale"))
        last = next(node for node in model.graph.node if node.output[0] == "y")
        last.output[0] = "y_right"
        model.graph.node.append(onnx.helper.make_node("Mul", ["y_right", "row_scale"], ["y"]))
        return f"rows from {start} on times {factor:g}", ("y",)

    return altered(bed, edit)


FAULT = Fault(
    title="Rows by their place",
    family="batch",
    expected="SHP001",
    # A recording cannot be asked again; then that a layer is wrong is what can be told.
    accepted=("FUS003",),
    subjects=("small-rows",),
    plant=_plant,
)
