"""Flushed subnormals: numbers below the smallest normal one became zero.

In FP32 (below 2^-126) where a runtime sets flush-to-zero, and in FP16 (below 2^-14) where an engine stores FP16 but has no
subnormals. Inputs and parameters are flushed, and the output.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, MXCSR bits FTZ and DAZ; IEEE 754-2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.formats import FORMATS
from parityscope.hypotheses.arithmetic import FormatRounding, Hypothesis, RegionContext, Variant
from parityscope.hypotheses.arithmetic._rounding import applies_always, output_rounding, rounding_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from parityscope.hypotheses.arithmetic import Operand


def _flush_subnormals(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    return np.where(np.abs(array) < FORMATS[name].smallest_normal, np.copysign(array.dtype.type(0), array), array)


def _flushing_variant(name: str) -> Variant:
    def transform(array: np.ndarray, _: Operand) -> np.ndarray:
        return _flush_subnormals(name, array)

    output = FormatRounding(
        name=name, unit=FORMATS["f32"].unit_roundoff, apply=lambda array: _flush_subnormals(name, array)
    )
    title = FORMATS[name].title
    return Variant(
        words=f"{title} subnormals flushed to zero, nothing else rounded",
        stored=transform,
        between=transform,
        output=output,
    )


def _list_variants(_node: ir.Node, _context: RegionContext) -> Iterator[Variant]:
    yield _flushing_variant("f32")
    yield _flushing_variant("f16")
    half = rounding_to("f16", subnormals=False)
    yield Variant(words="FP16 inputs and parameters without subnormals", stored=half)
    yield Variant(
        words="FP16 inputs, parameters and output without subnormals",
        stored=half,
        output=output_rounding("f16", subnormals=False),
    )


HYPOTHESIS = Hypothesis(
    name="flushed_subnormals",
    title="Flushed subnormals",
    applies=applies_always,
    variants=_list_variants,
)
