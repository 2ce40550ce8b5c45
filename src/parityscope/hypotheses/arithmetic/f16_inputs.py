"""FP16 inputs: what a layer reads was rounded to FP16, its result kept in FP32.

Either only what is multiplied (tensor cores that take FP16 and accumulate and return FP32), or every input and
parameter (weights and activations stored in FP16). Numbers are rounded to nearest even.

Source: IEEE 754-2019 binary16; the FP32 accumulator: NVIDIA PTX ISA, mma instructions.
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import inputs_rounded

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="f16_inputs", title="FP16 inputs", family="arithmetic", applies=applies_always, variants=inputs_rounded("f16")
)
