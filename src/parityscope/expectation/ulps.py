"""How exact operators are in FP32, one element at a time: which make no error, and the bounds of the others.

A bound B is in units in the last place; 0.5 is the correct rounding that IEEE 754 asks of the basic operations and the
square root. For functions it is the bound of the OpenCL C specification 3.0, section 7.4 (relative error as ULPs), which
vendors' libraries keep: exp 3, log 3, pow 16, tanh 5, erf 16, sin and cos 4. Compositions add the bounds of their steps.
Sums and products have formulas of their own (`variances`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators import STANDARD, of_exactness

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

__all__ = ["EXACT", "SUMS", "ULPS", "ulps_of"]

# Operators that make no error of their own in FP32: they move, choose or compare, or their results are whole numbers.
EXACT = of_exactness("exact")
# Operators that sum, and normalizations and Softmax with sums inside.
SUMS = frozenset(name for name in of_exactness("sums") if STANDARD[name].ulps is None)
# Units in the last place by operator; what is in no table counts as one correct rounding.
ULPS: Mapping[str, float] = {one.name: one.ulps for one in STANDARD.values() if one.ulps is not None}
# Two axes, each of four terms whose signs alternate and whose weights are polynomials of a coordinate.
_CUBIC = 8.0
_CORRECT = 0.5
_WELL_KNOWN = frozenset({0.5, 1.0, 2.0})


def ulps_of(node: ir.Node) -> float | None:
    """The bound of an elementwise operator; None for those that sum and those that are exact."""
    if node.op_type in EXACT or node.op_type in SUMS:
        return None
    if node.op_type in {"Resize", "Upsample"} and _resize_mode(node) == "nearest":
        return None
    if node.op_type in {"Resize", "GridSample"} and _resize_mode(node) in {"cubic", "bicubic"}:
        return _CUBIC
    if node.op_type == "Pow" and _is_root_or_square(node):
        return _CORRECT
    return ULPS.get(node.op_type, _CORRECT)


def _resize_mode(node: ir.Node) -> str:
    return node.attributes.get_string("mode", "nearest")


def _is_root_or_square(node: ir.Node) -> bool:
    """Whether Pow has an exponent that libraries compute with correct rounding: a constant 0.5, 1 or 2."""
    exponent = node.inputs[1].const_value if node.inputs[1] is not None else None
    return exponent is not None and exponent.size == 1 and float(exponent.numpy().reshape(-1)[0]) in _WELL_KNOWN
