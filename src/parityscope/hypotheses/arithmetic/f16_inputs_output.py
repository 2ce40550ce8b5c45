"""FP16 inputs and output: what a layer reads and what it gives back was rounded to FP16.

The usual FP16 engine: tensors live in memory in FP16, products accumulate in FP32. What is fused into one kernel is
rounded at its edges only; a bias may stay FP32; or, unfused, every tensor between is stored too.

Source: IEEE 754-2019 binary16; the rounding model was measured on FP16 and BF16 engines (docs/numerics.md).
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import inputs_and_output_stored

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="f16_inputs_output",
    title="FP16 inputs and output",
    family="arithmetic",
    applies=applies_always,
    variants=inputs_and_output_stored("f16"),
)
