"""The runtime computes in BF16, a default on CPUs that have it, where FP32 was said."""

from __future__ import annotations

from proving.faults.planted._undeclared import undeclared
from proving.faults.records import Fault

FAULT = Fault(
    title="BF16 that nobody declared",
    family="arithmetic",
    expected="ACC001",
    repair="declare",
    subjects=(
        "small-two",
        "small-conv",
        "small-encoder",
        "small-rows",
        "small-map",
        "ocr-cls",
        "ocr-rec",
        "ocr-det",
        "vad-18",
        "pitch",
        "magika",
    ),
    plant=undeclared("bf16"),
)
