"""BF16 inputs: what a layer reads was rounded to BF16, its result kept in FP32.

Either only what is multiplied (tensor cores that take BF16 and accumulate and return FP32), or every input and
parameter (weights and activations stored in BF16). Numbers are rounded to nearest even.

Source: Intel, "BFLOAT16 - Hardware Numerics Definition", 2018; the FP32 accumulator: NVIDIA PTX ISA, mma instructions.
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._storage import inputs_rounded

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="bf16_inputs",
    title="BF16 inputs",
    family="arithmetic",
    applies=applies_always,
    variants=inputs_rounded("bf16"),
)
