"""A weight or a running variance is larger than FP16's largest number, and the deployment is FP16."""

from __future__ import annotations

from functools import partial

from proving.faults.ranges import deployed_in_half, reading_large
from proving.faults.records import Fault

FAULT = Fault(
    title="A parameter beyond FP16",
    family="range",
    expected="RNG001",
    repair="keep_in_fp32",
    subjects=("small-variance", "ocr-det"),
    plant=partial(deployed_in_half, reading_large),
)
