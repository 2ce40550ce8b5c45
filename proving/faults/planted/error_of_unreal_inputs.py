"""The test drives the network where no real sample goes, and where a table of the deployment ends; real samples are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    # Real samples stay below the end of the table, test data of another scale do not.
    end = 1.1 * max(float(np.abs(array).max()) for sample in bed.samples for array in sample.values())
    size = np.float32(bed.draw.choice([10, 30, 100]))
    line = f"data = {{name: np.clip(array, -np.float32({end}), np.float32({end})) for name, array in data.items()}}"
    return Plant(
        words=f"inputs are {size:g} times real ones, the deployment's tables end at {end:.2g}",
        candidate=program(bed, before=line),
        declared="f32",
        samples=[{name: array * size for name, array in sample.items()} for sample in bed.samples],
        real=bed.samples,
    )


FAULT = Fault(
    title="An error of unreal inputs",
    family="data",
    expected="DAT004",
    subjects=("small-two", "small-rows", "small-map", "small-many"),
    plant=_plant,
)
