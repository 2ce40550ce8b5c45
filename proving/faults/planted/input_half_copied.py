"""A copy is too short: half of an input, or as many bytes as it has elements, reaches the device; the rest is zero or old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import fed
from proving.faults.records import Fault

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    names = [name for name, array in bed.samples[0].items() if array.size >= 16]
    name = names[int(bed.draw.integers(len(names)))]
    share = int(bed.draw.choice([2, bed.samples[0][name].dtype.itemsize]))
    given = []
    for each in bed.samples:
        short = each[name].reshape(-1).copy()
        short[short.size // share :] = 0
        given.append({**each, name: short.reshape(each[name].shape)})
    return fed(bed, given, f"one part in {share} of {name} is copied")


FAULT = Fault(
    title="An input copied in part",
    family="bindings",
    expected="BND002",
    repair="upload",
    subjects=("small-two", "small-many", "small-rows", "small-conv", "ocr-cls", "vad-seq", "magika", "pitch"),
    plant=_plant,
)
