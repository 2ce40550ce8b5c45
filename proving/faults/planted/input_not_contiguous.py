"""A transposed view is handed over by its pointer: the engine reads the memory in another order of axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.records import Fault

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    names = [name for name, array in bed.samples[0].items() if sum(size > 1 for size in array.shape) >= 2]
    name = names[int(bed.draw.integers(len(names)))]
    array = bed.samples[0][name]
    long = [axis for axis, size in enumerate(array.shape) if size > 1]
    axes = list(range(array.ndim))
    place = int(bed.draw.integers(len(long) - 1))
    axes[long[place]], axes[long[place + 1]] = axes[long[place + 1]], axes[long[place]]
    given = [
        {**each, name: np.ascontiguousarray(each[name].transpose(axes)).reshape(each[name].shape)}
        for each in bed.samples
    ]
    return fed(bed, given, f"axes {long[place]} and {long[place + 1]} of {name} lie exchanged in memory")


FAULT = Fault(
    title="An input in another memory order",
    family="bindings",
    expected="BND002",
    # Of a picture this is preparation: rows and columns exchanged.
    accepted=("PRE001",),
    subjects=("small-rows", "small-map", "small-conv", "vad-seq", "ocr-cls"),
    plant=_plant,
)
