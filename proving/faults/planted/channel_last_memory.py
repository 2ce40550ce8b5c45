"""The memory of an NHWC array is handed over where NCHW is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from proving.faults.pictures import prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    def prepare(picture: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(prepared(bed, picture).transpose(0, 2, 3, 1))

    return prepared_wrongly(bed, prepare, "NHWC bytes read as NCHW")


FAULT = Fault(
    title="Channel-last memory",
    family="preprocessing",
    expected="PRE001",
    # The same bytes, said of the buffer.
    accepted=("BND002",),
    subjects=IMAGES,
    plant=_plant,
)
