"""An iteration amplifies rounding from call to call: FP16 or BF16 where FP32 was declared, fed back on itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = str(bed.draw.choice(["f16", "bf16"]))
    steps = int(bed.draw.integers(8, 16))
    words = f"{base} fed back {steps} times, f32 declared"
    return Plant(words=words, candidate=live(base), declared="f32", states={"h": "next"}, steps=steps)


FAULT = Fault(
    title="Growth in a loop",
    family="sequence",
    expected="SEQ001",
    # What starts the growth.
    accepted=("ACC001",),
    subjects=("small-loop",),
    plant=_plant,
)
