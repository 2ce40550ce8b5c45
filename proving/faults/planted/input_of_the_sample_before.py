"""One input is not uploaded again for the next sample: the engine still holds the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import fed
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    first = bed.samples[0]
    names = [name for name, array in first.items() if array.size > 1]
    name = names[int(bed.draw.integers(len(names)))]
    before = [bed.samples[max(0, place - 1)] for place in range(len(bed.samples))]
    if any(each[name].shape != first[name].shape for each in bed.samples):
        raise NoEffectError("samples are of several sizes")
    given = [{**each, name: old[name]} for each, old in zip(bed.samples, before, strict=True)]
    return fed(bed, given, f"{name} is the sample before's")


FAULT = Fault(
    title="An input of the sample before",
    family="bindings",
    expected="BND002",
    # Where it is the only input, an old output looks the same from outside.
    accepted=("BND003",),
    subjects=("small-two", "small-many", "small-encoder", "vad-18", "vad-seq"),
    plant=_plant,
)
