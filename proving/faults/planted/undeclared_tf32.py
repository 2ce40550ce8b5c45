"""Products run in TF32, a default of the GPU, where FP32 was said."""

from __future__ import annotations

from proving.faults.planted._undeclared import undeclared
from proving.faults.records import Fault

FAULT = Fault(
    title="TF32 that nobody declared",
    family="arithmetic",
    expected="ACC001",
    repair="declare",
    subjects=(
        "small-two",
        "small-conv",
        "small-encoder",
        "small-rows",
        "ocr-cls",
        "ocr-rec",
        "ocr-det",
        "vad-18",
        "pitch",
        "magika",
    ),
    plant=undeclared("tf32"),
)
