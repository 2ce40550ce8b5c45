"""FP16 output: a layer computed in FP32 and only its result was stored in FP16.

Normalizations and pointwise layers in a FP16 engine: their inputs lie on FP16's grid already, the arithmetic is FP32.

Source: IEEE 754-2019 binary16.
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import output_stored

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="f16_output", title="FP16 output", family="arithmetic", applies=applies_always, variants=output_stored("f16")
)
