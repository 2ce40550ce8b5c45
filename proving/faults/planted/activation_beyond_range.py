"""Squares and sums of a normalization or of a GELU grow beyond FP16's largest number, and the deployment is FP16."""

from __future__ import annotations

from functools import partial

from proving.faults.ranges import deployed_in_half, overflowing
from proving.faults.records import Fault

FAULT = Fault(
    title="An activation beyond FP16",
    family="range",
    expected="RNG002",
    repair="keep_in_fp32",
    subjects=("small-norm", "magika"),
    plant=partial(deployed_in_half, overflowing),
)
