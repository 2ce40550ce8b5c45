"""No data were given, so that inputs are generated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    del bed
    base = "f32"  # the models may leave any arithmetic on generated numbers
    return Plant(words=f"no inputs are given ({base})", candidate=live(base), declared=base, given=False)


FAULT = Fault(
    title="No test data",
    family="data",
    expected="DAT001",
    subjects=("small-two", "small-conv", "ocr-cls", "magika"),
    plant=_plant,
    informs=True,
)
