"""BF16 inputs and output: what a layer reads and what it gives back was rounded to BF16.

The usual BF16 engine: tensors live in memory in BF16, products accumulate in FP32. What is fused into one kernel is
rounded at its edges only; a bias may stay FP32; or, unfused, every tensor between is stored too.

Source: Intel, "BFLOAT16 - Hardware Numerics Definition", 2018; the
rounding model was measured on FP16 and BF16 engines (docs/numerics.md).
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import inputs_and_output_stored

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="bf16_inputs_output",
    title="BF16 inputs and output",
    family="arithmetic",
    applies=applies_always,
    variants=inputs_and_output_stored("bf16"),
)
