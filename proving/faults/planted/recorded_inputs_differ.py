"""Both programs recorded the tensors that enter their models, and those are not the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from proving.faults.pictures import NORMALS, pixels, prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    way = int(bed.draw.integers(3))
    mean, deviation = NORMALS["imagenet" if bed.subject.normal != "imagenet" else "half"]
    shift = int(bed.draw.integers(1, 4))

    def prepare(picture: np.ndarray) -> np.ndarray:
        if way == 0:
            return np.asarray((picture[:, ::-1] - mean) / deviation)
        if way == 1:
            return prepared(bed, picture[:, ::-1] * 255)
        return prepared(bed, np.roll(picture, shift, axis=3))

    words = ("BGR, another normalization", "BGR, bytes", f"shifted by {shift} pixels")[way]
    (name,) = bed.samples[0]
    own = [{name: np.asarray(prepare(pixels(bed, sample[name])), np.float32)} for sample in bed.samples]
    return replace(prepared_wrongly(bed, prepare, f"{words}; inputs recorded"), own=own)


FAULT = Fault(
    title="Recorded inputs differ",
    family="preprocessing",
    expected="PRE002",
    # What the outputs alone give away as well.
    accepted=("PRE001",),
    subjects=IMAGES,
    plant=_plant,
)
