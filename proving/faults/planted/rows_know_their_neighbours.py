"""A workspace is shared between the rows of a batch: each answer holds something of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    share = float(bed.draw.choice([0.05, 0.1, 0.3]))
    if bed.draw.random() < 0.5:
        line = f"y = outputs[names[0]]\noutputs[names[0]] = y + np.float32({share}) * (y.mean(axis=0) - y)"
        words = "the mean of all rows"
    else:
        line = f"y = outputs[names[0]]\noutputs[names[0]] = y + np.float32({share}) * np.roll(y, 1, axis=0)"
        words = "the row before"
    return Plant(words=f"each row holds {share:g} of {words}", candidate=program(bed, after=line))


FAULT = Fault(
    title="Rows that know their neighbours",
    family="batch",
    expected="SHP001",
    subjects=("small-rows",),
    plant=_plant,
)
