"""AveragePool counts the zeros of the padding, as another framework's default does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, nodes_of
from proving.faults.records import Fault

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    node = nodes_of(model, draw, "AveragePool")[0]
    kept = [one for one in node.attribute if one.name != "count_include_pad"]
    value = int(len(kept) == len(node.attribute))
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("count_include_pad", value)])
    return f"{node.output[0]} has count_include_pad {value}", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="An average that counts the padding",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv",),
    plant=_plant,
)
