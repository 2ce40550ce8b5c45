"""The copy back is too short, or is read too early: from some element on the buffer still holds zeros, or the answer before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import read
from proving.faults.planting import program
from proving.faults.records import Fault, Plant
from proving.faults.subjects import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from proving.faults.records import Bed

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    share, old = float(bed.draw.uniform(0.3, 0.9)), bool(bed.draw.random() < 0.5)

    def change(samples: Samples) -> Samples:
        found = []
        for place, each in enumerate(samples):
            name = max(each, key=lambda one: each[one].size)
            short, before = each[name].reshape(-1).copy(), samples[place - 1][name].reshape(-1)
            start = int(share * short.size)
            short[start:] = before[start : short.size] if old and place and before.size == short.size else 0
            found.append({**each, name: short.reshape(each[name].shape)})
        return found

    plant = read(bed, change, f"from {share:.2f} of an output on it is {'old' if old else 'zero'}")
    if not bed.subject.trained and bed.draw.random() < 0.3:
        line = f"first = outputs[names[0]].reshape(-1)\nfirst[int({share} * first.size):] = 0"
        return Plant(words=f"a program writes {share:.2f} of its output", candidate=program(bed, after=line))
    return plant


FAULT = Fault(
    title="The tail of an output not written",
    family="bindings",
    expected="BND003",
    repair="wait",
    subjects=(*OUTPUTS, "small-rows", "ocr-cls"),
    plant=_plant,
)
