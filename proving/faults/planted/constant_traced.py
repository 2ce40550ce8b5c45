"""A value that depends on the data was traced: the export holds the first sample's, and only that sample is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered
from proving.faults.planting import answers
from proving.faults.records import Fault

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant

_TRACED = {"small-encoder": ("wide", "kinds", "mask"), "small-two": ("q", "p1"), "small-many": ("t0", "t3", "t7")}


def _plant(bed: Bed) -> Plant:
    names = _TRACED[bed.subject.name]
    name = names[int(bed.draw.integers(len(names)))]
    values = answers(bed.path, bed.samples[:1], inside=True)[0][name]

    def edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
        import onnx

        del draw
        node = next(one for one in model.graph.node if one.output[0] == name)
        readers = [one.output[0] for one in model.graph.node if name in one.input]
        place = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        traced = onnx.numpy_helper.from_array(values, f"{name}_traced")
        model.graph.node.insert(place, onnx.helper.make_node("Constant", [], [name], value=traced))
        # A constant is not recorded: then its error is seen first where it is read. From outside it is the input that stays.
        given = [value.name for value in model.graph.input if value.name in node.input]
        return f"{name} is the first sample's", (name, *given, *readers)

    return altered(bed, edit)


FAULT = Fault(
    title="A traced constant",
    family="export",
    expected="FUS003",
    # A constant in place of an input's part is also an input that is not uploaded again.
    accepted=("FUS002", "BND002", "PRE001", "EXP001", "EXP003"),
    subjects=tuple(_TRACED),
    plant=_plant,
)
