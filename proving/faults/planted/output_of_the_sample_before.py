"""The output is read before the engine has finished: each answer is the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import read
from proving.faults.records import Fault, NoEffectError
from proving.faults.subjects import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from proving.faults.records import Bed, Plant

    Samples = Sequence[Mapping[str, np.ndarray]]


def _plant(bed: Bed) -> Plant:
    def change(samples: Samples) -> Samples:
        if any(each[name].shape != array.shape for each in samples for name, array in samples[0].items()):
            raise NoEffectError("outputs are of several sizes")
        return [samples[max(0, place - 1)] for place in range(len(samples))]

    return read(bed, change, "each output is the sample before's")


FAULT = Fault(
    title="An output of the sample before",
    family="bindings",
    expected="BND003",
    # Where it is the model's only input, an input that is not uploaded again gives the same.
    accepted=("BND002",),
    subjects=tuple(name for name in OUTPUTS if name not in {"minilm-i8", "ocr-rec"}),
    plant=_plant,
)
