"""The test data are zeros, or ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.planting import base_of, live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    value = np.float32(bed.draw.choice([0.0, 1.0, 0.5, 128.0]))
    given = [{name: np.full_like(array, value) for name, array in sample.items()} for sample in bed.samples]
    return Plant(words=f"inputs are {value:g} ({base})", candidate=live(base), declared=base, samples=given)


FAULT = Fault(
    title="Constants as test data",
    family="data",
    expected="DAT003",
    subjects=("small-two", "small-map", "small-conv", "ocr-cls", "ocr-rec"),
    plant=_plant,
    informs=True,
)
