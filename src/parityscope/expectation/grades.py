"""Measured and expected errors -> grades: the finest arithmetic whose expected error covers what was measured.

A tensor's grade is the finest arithmetic whose *expected* error on these samples covers the measured one:

* `f32`: the noise floor, how far two honest FP32 evaluations are expected and measured to be apart.
* `tf32`, `f16`, `bf16`: the reference simulated with that format's *rounding*, its range left as FP32's. Loss of range
  (overflow, underflow to zero) is not rounding and is never excused by a grade. Where a simulation gives NaN or
  infinity and the reference does not, nothing is expected: an infinite error would excuse every other.
* `int8`: the reference with the operands of its products quantized to INT8, by scales of these samples; and where the
  candidate's own file keeps constants in INT8, these on grids as coarse as its own. It is computed where it is declared.

A measured error may exceed the expected one by a margin and still have that grade; the margins are constants below.

How exact operators are in FP32, one element at a time: which make no error, and the bounds of the others.

A bound B is in units in the last place; 0.5 is the correct rounding that IEEE 754 asks of the basic operations and the
square root. For functions it is the bound of the OpenCL C specification 3.0, section 7.4 (relative error as ULPs), which
vendors' libraries keep: exp 3, log 3, pow 16, tanh 5, erf 16, sin and cos 4. Compositions add the bounds of their steps.
Sums and products have formulas of their own (`variances`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.comparison.distance import error_distance
from parityscope.comparison.moments import scale_by_power
from parityscope.expectation.error_model import ROUNDING
from parityscope.operators import STANDARD, of_exactness

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from parityscope.comparison import Statistics
    from parityscope.records import Grade

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


FORMATS = ("tf32", "f16", "bf16")

# Half a unit in the last place: the least relative error that rounding one result to float32 can make.
FLOAT32_ROUNDING = 2.0**-24
# The squared distance of two tensors that each side rounds once, with nothing carried on: less than that no floor is.
BOTH_ROUND = 2.0 * (ROUNDING * FLOAT32_ROUNDING) ** 2

# Final outputs of real engines lie within a factor of two of the simulated rounding error (measured on FP16 engines:
# per tensor 0.91 to 1.11 of it; accumulation order moves it by a few percent).
_FORMAT_MARGIN = 2.0

# Measured with bench/noise_floor.py, float tensors of more than 64 elements: ONNX Runtime against OpenVINO in FP32 and
# against itself unoptimized, on the PP-OCRv4 detector, recogniser and angle classifier (1113 tensors). The error of a
# tensor over its floor had medians of 0.2 to 0.8 (one pair: 1.45), 99th percentiles of up to 1.7, and was 1.7 at most.
# The margin is twice that, rounded up, for kernels that were not measured (Winograd's) and tensors of few elements. It
# hides no TF32: with TF32 products nine of ten tensors there were more than 200 floors away.
_FLOAT32_MARGIN = 4.0


def graded_error(statistics: Statistics) -> float:
    """`error_distance`; of floats whose reference is zero everywhere their root mean square, in the tensor's own unit.

    Relative to nothing every error is infinite, and a bug as large as a rounding.
    """
    floats = statistics.floats
    if floats is None or floats.disagreeing or floats.moments.reference2 or not floats.finite:
        return error_distance(statistics)
    return scale_by_power(math.sqrt(floats.moments.error2 / floats.finite), floats.moments.exponent)


def grade_of(measured: float, expected: Mapping[str, float]) -> Grade:
    """The finest arithmetic that covers `measured`; "beyond" when none does."""
    order: tuple[Grade, ...] = ("f32", "tf32", "f16", "bf16", "int8")
    for name in order:
        if name in expected and measured <= margin_of(name) * expected[name]:
            return name
    return "beyond"


def margin_of(name: str) -> float:
    """How many times the expected error still has the grade `name`."""
    return _FLOAT32_MARGIN if name == "f32" else _FORMAT_MARGIN
