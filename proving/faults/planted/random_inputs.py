"""The test data are random numbers written to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.planting import base_of, live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    way = int(bed.draw.integers(3))
    given = []
    for sample in bed.samples:
        drawn = {}
        for name, array in sample.items():
            values = bed.draw.normal(size=array.shape) if way == 2 else bed.draw.uniform(-way, 1, array.shape)
            drawn[name] = values.astype(np.float32)
        given.append(drawn)
    words = ("uniform in [0, 1)", "uniform in [-1, 1)", "normal")[way]
    return Plant(words=f"inputs are {words} ({base})", candidate=live(base), declared=base, samples=given)


FAULT = Fault(
    title="Random numbers as test data",
    family="data",
    expected="DAT003",
    subjects=("small-conv", "small-map", "ocr-cls", "ocr-rec", "ocr-npm-cls"),
    plant=_plant,
    informs=True,
)
