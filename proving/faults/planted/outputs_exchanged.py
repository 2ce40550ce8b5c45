"""Two outputs of one shape are taken for each other, because they were listed in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import read
from proving.faults.records import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from proving.faults.records import Bed, Plant

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    def change(samples: Samples) -> Samples:
        shapes = {name: array.shape for name, array in samples[0].items()}
        one, other = next((a, b) for a in shapes for b in shapes if a < b and shapes[a] == shapes[b])
        return [{**each, one: each[other], other: each[one]} for each in samples]

    return read(bed, change, "two outputs exchanged")


FAULT = Fault(
    title="Two outputs exchanged",
    family="bindings",
    expected="BND001",
    repair="bind_by_name",
    subjects=("small-two", "vad-seq"),
    plant=_plant,
)
