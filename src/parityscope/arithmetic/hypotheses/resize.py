"""Another Resize: coordinates, rounding to the nearest, or interpolation.

Every coordinate transformation with every rounding mode (nearest), every coordinate transformation (linear, cubic), the
other interpolations with the same coordinates, and the other usual coefficient of the cubic (-0.5 and -0.75).

Sources: ONNX operator Resize; frameworks differ in the default (PyTorch align_corners, half_pixel in TensorFlow 2,
asymmetric in TensorFlow 1 and in Upsample).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic._attributes import number, text
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import put

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

__all__ = ["HYPOTHESIS"]

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = ("nearest", "linear", "cubic")
_COEFFICIENTS = (-0.75, -0.5)
_SYMMETRIC_FROM = 19  # the opset that has half_pixel_symmetric


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return node.op_type == "Resize"


def _changed(words: str, attributes: Mapping[str, str | float]) -> Variant:
    def rewrite(_: ir.Model, node: ir.Node, __: float) -> None:
        for name, value in attributes.items():
            put(node, name, value)

    return Variant(words=words, rewrite=rewrite)


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    mode = text(node, "mode", "nearest")
    coordinates = text(node, "coordinate_transformation_mode", "half_pixel")
    rounding = text(node, "nearest_mode", "round_prefer_floor")
    known = _COORDINATES if context.model.opset_imports.get("", 0) >= _SYMMETRIC_FROM else _COORDINATES[:-1]
    for other in known:
        for way in _ROUNDING if mode == "nearest" else (rounding,):
            if (other, way) != (coordinates, rounding):
                words = f"coordinates {other}{f', rounded by {way}' if mode == 'nearest' else ''}"
                yield _changed(words, {"coordinate_transformation_mode": other, "nearest_mode": way})
    for other in _MODES:
        if other != mode:
            yield _changed(f"interpolated by {other} and not by {mode}", {"mode": other})
    if mode == "cubic":
        for coefficient in _COEFFICIENTS:
            if coefficient != number(node, "cubic_coeff_a", -0.75):
                yield _changed(f"the cubic's coefficient is {coefficient:g}", {"cubic_coeff_a": coefficient})


HYPOTHESIS = Hypothesis(name="resize", title="Another Resize", family="semantic", applies=_applies, variants=_variants)
