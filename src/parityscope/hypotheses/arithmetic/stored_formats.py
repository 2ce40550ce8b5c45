"""A layer computed in FP32 between numbers of a narrower format: what it read, what it gave back, or both were rounded to it.

In FP16 and BF16 (16 bits), to nearest even:

* inputs: only what is multiplied (tensor cores that accumulate in FP32 and return that), or every input and parameter;
* output: normalizations and pointwise layers of such an engine, whose inputs lie on the format's grid already;
* inputs and output: the usual engine, whose tensors live in memory in the format. What is fused into one kernel is rounded at its
  edges only; a bias may stay FP32; or, unfused, every tensor between is stored too.

In FP8, what is multiplied: as it is, scaled so that the largest magnitude of each tensor becomes the format's largest number, or
with a scale for every output channel of the weights. Products accumulate in FP32; the output is kept in FP32, BF16 or FP16.
Where no product is in the region, its inputs and output are stored in the format.

Sources: IEEE 754-2019 binary16; Intel, "BFLOAT16 - Hardware Numerics Definition", 2018; the FP32 accumulator: NVIDIA PTX ISA, mma
instructions; OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023; Micikevicius et al., arXiv 2209.05433; the rounding model
was measured on FP16 and BF16 engines (docs/numerics.md).
"""

from __future__ import annotations

from parityscope.hypotheses.arithmetic import Hypothesis
from parityscope.hypotheses.arithmetic._rounding import applies_always
from parityscope.hypotheses.arithmetic._scaling import operands_scaled
from parityscope.hypotheses.arithmetic._storage import inputs_and_output_stored, inputs_rounded, output_stored

HYPOTHESES = tuple(
    Hypothesis(name=name, title=title, applies=applies_always, variants=variants)
    for name, title, variants in (
        ("f16_inputs", "FP16 inputs", inputs_rounded("f16")),
        ("f16_output", "FP16 output", output_stored("f16")),
        ("f16_inputs_output", "FP16 inputs and output", inputs_and_output_stored("f16")),
        ("bf16_inputs", "BF16 inputs", inputs_rounded("bf16")),
        ("bf16_output", "BF16 output", output_stored("bf16")),
        ("bf16_inputs_output", "BF16 inputs and output", inputs_and_output_stored("bf16")),
        ("f8e4m3", "FP8 E4M3", operands_scaled("f8e4m3")),
        ("f8e5m2", "FP8 E5M2", operands_scaled("f8e5m2")),
    )
)
