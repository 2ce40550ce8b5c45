"""FP8 E4M3: what is multiplied was rounded to FP8 E4M3.

As it is, scaled so that the largest magnitude of each tensor becomes 448, or with a scale for every output channel of the
weights. Products accumulate in FP32; the output is kept in FP32, BF16 or FP16. Where no product is in the region, its
inputs and output are stored in FP8 E4M3.

Source: OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023; Micikevicius et al., arXiv 2209.05433.
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._scaling import operands_scaled

__all__ = ["HYPOTHESIS"]

HYPOTHESIS = Hypothesis(
    name="f8e4m3", title="FP8 E4M3", family="arithmetic", applies=applies_always, variants=operands_scaled("f8e4m3")
)
