"""A tool drew integers from {0, 1} for token numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import base_of, live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    given = [
        {name: bed.draw.integers(0, 2, array.shape).astype(array.dtype) for name, array in sample.items()}
        for sample in bed.samples
    ]
    for each in given:
        each["attention_mask"][:, 0] = 1
    return Plant(words=f"token numbers are 0 and 1 ({base})", candidate=live(base), declared=base, samples=given)


FAULT = Fault(
    title="Token numbers nought and one",
    family="data",
    expected="DAT003",
    subjects=("small-encoder", "minilm-i8"),
    plant=_plant,
    informs=True,
)
