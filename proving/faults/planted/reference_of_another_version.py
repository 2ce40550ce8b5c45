"""The recorded reference is of another version of the model, and the candidate is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import constant, set_constant
from proving.faults.planting import answers, edited, live, write_samples
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    import onnx

    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    def older(model: onnx.ModelProto) -> None:
        names = [one.name for one in model.graph.initializer if np.prod(one.dims) > 64]
        if not names:
            raise NoEffectError("there are no weights to change")
        name = names[int(bed.draw.integers(len(names)))]
        values = constant(model, name)
        if values is None or values.dtype != np.float32:
            raise NoEffectError("the weights are no floats")
        set_constant(model, name, values * (1 + 0.1 * bed.draw.normal(size=values.shape)))

    recorded = write_samples(answers(edited(bed, older), bed.samples), bed.folder / "reference")
    return Plant(
        words="the reference is a recording of another version",
        reference=f"saved?path={recorded}&pair=order",
        candidate="openvino:f32" if bed.subject.openvino and bed.draw.random() < 0.5 else live("f32"),
        declared="f32",
    )


FAULT = Fault(
    title="A reference of another version",
    family="data",
    expected="DAT009",
    subjects=("small-two", "small-conv", "small-encoder", "small-rows", "vad-18"),
    plant=_plant,
)
