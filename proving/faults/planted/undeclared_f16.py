"""The converted file is half precision where FP32 was said."""

from __future__ import annotations

from proving.faults.planted._undeclared import undeclared
from proving.faults.records import Fault

FAULT = Fault(
    title="FP16 that nobody declared",
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
        "vad-18",
        "vad-seq",
    ),
    plant=undeclared("f16"),
)
