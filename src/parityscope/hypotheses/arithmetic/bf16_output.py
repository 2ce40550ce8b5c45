"""BF16 output: a layer computed in FP32 and only its result was stored in BF16.

Normalizations and pointwise layers in a BF16 engine: their inputs lie on BF16's grid already, the arithmetic is FP32.

Source: Intel, "BFLOAT16 - Hardware Numerics Definition", 2018.
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import output_stored

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="bf16_output", title="BF16 output", family="arithmetic", applies=applies_always, variants=output_stored("bf16")
)
