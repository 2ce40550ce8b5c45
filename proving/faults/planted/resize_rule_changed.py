"""Resize runs with another mode or another rule for coordinates than the model says (align_corners, asymmetric, nearest)."""

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

    node = nodes_of(model, draw, "Resize", "Upsample")[0]
    old = {one.name: one for one in node.attribute}
    rule = old.get("coordinate_transformation_mode")
    said = rule.s.decode() if rule is not None else "half_pixel"
    new = str(draw.choice([each for each in ("align_corners", "asymmetric", "half_pixel") if each != said]))
    kept = [one for one in node.attribute if one.name != "coordinate_transformation_mode"]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("coordinate_transformation_mode", new)])
    return f"{node.output[0]} resizes with {new} in place of {said}", (node.output[0],)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Another rule of Resize",
    family="fusion",
    expected="FUS002",
    subjects=("small-conv", "ocr-det"),
    plant=_plant,
)
