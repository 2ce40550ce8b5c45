"""Padding at the other side: begin and end exchanged, or as TensorFlow's SAME divides it where PyTorch pads both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    for node in nodes_of(model, draw, "Conv", "AveragePool", "MaxPool"):
        found = {one.name: list(one.ints) for one in node.attribute}
        pads = found.get("pads", [])
        if len(pads) != 4 or not any(pads):
            continue
        new = [*pads[2:], *pads[:2]]
        if new == pads:
            # TensorFlow's SAME: of a total that is one less, the odd one lies at the end. The size of the output stays.
            strides = found.get("strides", [1, 1])
            less = [max(0, size - 1) if step > 1 else size for size, step in zip(pads[:2], strides, strict=True)]
            new = [*less, *pads[2:]]
        if new != pads:
            pads_of = next(one for one in node.attribute if one.name == "pads")
            del pads_of.ints[:]
            pads_of.ints.extend(new)
            return f"{node.output[0]} pads {new} in place of {pads}", (node.output[0],)
    raise NoEffectError("no padding could be misplaced")


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Begin and end of the padding exchanged",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-cls", "ocr-rec", "ocr-det", "ocr-npm-cls"),
    plant=_plant,
)
