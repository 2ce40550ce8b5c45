"""Two faults of preparation at once: BGR and no division by 255, BGR and another normalization, mirrored and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.pictures import NORMALS, prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    way = int(bed.draw.integers(4))
    if way == 0:
        return prepared_wrongly(bed, lambda picture: prepared(bed, picture[:, ::-1] * 255), "BGR, not divided by 255")
    if way == 1:
        other = str(bed.draw.choice([name for name in NORMALS if name != bed.subject.normal]))
        mean, deviation = NORMALS[other]
        words = f"BGR, normalised as {other}"
        return prepared_wrongly(bed, lambda picture: (picture[:, ::-1] - mean) / deviation, words)
    if way == 2:
        return prepared_wrongly(bed, lambda picture: prepared(bed, picture[..., ::-1] * 255), "mirrored, bytes")

    def prepare(picture: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(prepared(bed, picture[:, ::-1]).transpose(0, 2, 3, 1))

    return prepared_wrongly(bed, prepare, "BGR, NHWC bytes read as NCHW")


FAULT = Fault(title="Two wrong steps", family="preprocessing", expected="PRE001", subjects=IMAGES, plant=_plant)
