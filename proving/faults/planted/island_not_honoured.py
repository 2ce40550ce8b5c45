"""A mixed-precision file asks for squares and sums in FP32, and the engine runs them in FP16 (NVIDIA/TensorRT issue 4019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import answers, recorded
from proving.faults.ranges import overflowing
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    sites = overflowing(bed)
    if not sites:
        raise NoEffectError("FP16 holds everything")
    outputs = answers(bed.path, bed.samples, "f16", inside=True)
    # BF16 is what the plan says outside of the island, and the recording is told to be of that.
    return Plant(
        words="the FP32 island runs in FP16", candidate=recorded(bed, outputs, "f16"), declared="bf16", sites=sites
    )


FAULT = Fault(
    title="An FP32 island that was not honoured",
    family="types",
    expected="RNG002",
    subjects=("small-norm",),
    plant=_plant,
)
