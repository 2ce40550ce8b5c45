"""The preprocessing of one sample made NaN: a division by a deviation of zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.planting import base_of, live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    given = [dict(sample) for sample in bed.samples]
    place = int(bed.draw.integers(len(given)))
    name = next(name for name, array in given[place].items() if array.dtype == np.float32)
    spoilt = given[place][name].copy()
    spoilt.reshape(-1)[int(bed.draw.integers(spoilt.size))] = np.nan
    given[place][name] = spoilt
    return Plant(words=f"sample {place} holds NaN ({base})", candidate=live(base), declared=base, samples=given)


FAULT = Fault(
    title="A sample with NaN",
    family="data",
    expected="DAT002",
    subjects=("small-two", "small-conv", "ocr-cls", "vad-seq"),
    plant=_plant,
    informs=True,
)
