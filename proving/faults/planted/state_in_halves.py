"""A recurrent network's state is kept in half precision between the calls; every single call is right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proving.faults.planting import answers, edited, live, stands_out
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed

_STATES = {"small-loop": {"h": "next"}, "vad-18": {"state": "stateN"}}


def _plant(bed: Bed) -> Plant:
    states = _STATES[bed.subject.name]
    narrow = str(bed.draw.choice(["FLOAT16", "BFLOAT16"]))

    def edit(model: onnx.ModelProto) -> None:
        import onnx

        for name in states:
            _renamed(model.graph, name, f"{name}_kept")
            kind = getattr(onnx.TensorProto, narrow)
            model.graph.node.insert(0, onnx.helper.make_node("Cast", [name], [f"{name}_small"], to=kind))
            wide = onnx.helper.make_node("Cast", [f"{name}_small"], [f"{name}_kept"], to=onnx.TensorProto.FLOAT)
            model.graph.node.insert(1, wide)

    steps = int(bed.draw.integers(8, 16))
    path = edited(bed, edit)
    stands_out(bed, answers(path, bed.samples), "f32")
    plant = Plant(words=f"the state is kept in {narrow}", candidate=live("f32", path), declared="f32")
    return replace(plant, states=states, steps=steps)


def _renamed(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Reads `new` wherever `old` was read, in the graphs of branches too."""
    for node in graph.node:
        for place, each in enumerate(node.input):
            if each == old:
                node.input[place] = new
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _renamed(attribute.g, old, new)


FAULT = Fault(
    title="A state in half precision",
    family="sequence",
    expected="SEQ001",
    # The rounding of the state itself.
    accepted=("ACC001",),
    repair="widen_state",
    subjects=tuple(_STATES),
    plant=_plant,
)
