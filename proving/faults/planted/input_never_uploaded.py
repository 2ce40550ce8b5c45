"""The copy of one input to the device was forgotten: the engine reads a fresh buffer, zero throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.changing import fed
from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    names = [name for name, array in bed.samples[0].items() if array.size > 1]
    name = names[int(bed.draw.integers(len(names)))]
    plant = fed(bed, [{**each, name: np.zeros_like(each[name])} for each in bed.samples], f"{name} is never uploaded")
    if not bed.subject.trained and bed.draw.random() < 0.3:
        line = f"data[{name!r}] = np.zeros_like(data[{name!r}])"
        return Plant(words=f"{name} is never uploaded by a program", candidate=program(bed, before=line))
    return plant


FAULT = Fault(
    title="An input never uploaded",
    family="bindings",
    expected="BND002",
    # A picture that is zero throughout, and a mask of no token, are wrong preparations by another name.
    accepted=("PRE001",),
    subjects=("small-two", "small-many", "small-encoder", "small-rows", "vad-18", "minilm-i8", "ocr-cls"),
    plant=_plant,
)
