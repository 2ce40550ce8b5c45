"""The constant that guards a logarithm becomes zero in FP16."""

from __future__ import annotations

from functools import partial

from proving.faults.ranges import deployed_in_half, reading_small
from proving.faults.records import Fault

FAULT = Fault(
    title="An epsilon that FP16 takes for nought",
    family="range",
    expected="RNG003",
    repair="raise_epsilon",
    subjects=("small-log", "pitch"),
    plant=partial(deployed_in_half, reading_small),
)
