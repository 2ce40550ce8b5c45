"""Operators that quantize and what takes it back."""

from __future__ import annotations

from parityscope.operators._records import Operator

OPERATORS = (
    Operator(
        "DequantizeLinear", "quantization", inputs=("input", "quantization scale", "zero point"), exactness="exact"
    ),
    Operator("DynamicQuantizeLinear", "quantization", traits=("steps",)),
    Operator(
        "QuantizeLinear",
        "quantization",
        inputs=("input", "quantization scale", "zero point"),
        exactness="exact",
        traits=("steps",),
    ),
)
