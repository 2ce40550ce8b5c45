"""A batch of one was built into the deployment: every row of a batch gets the answer of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    count = int(bed.draw.choice([1, 2, 3]))
    line = f"y = outputs[names[0]]\noutputs[names[0]] = np.concatenate([y[:{count}]] * len(y))[: len(y)]"
    return Plant(words=f"the first {count} rows are repeated", candidate=program(bed, after=line))


FAULT = Fault(
    title="A batch of one built in",
    family="batch",
    expected="SHP001",
    repair="batch_size",
    subjects=("small-rows",),
    plant=_plant,
)
