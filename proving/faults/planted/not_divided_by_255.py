"""Bytes are taken for numbers in [0, 1], or divided by 255 once more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    if bed.draw.random() < 0.6:
        return prepared_wrongly(bed, lambda picture: prepared(bed, picture * 255), "not divided by 255")
    return prepared_wrongly(bed, lambda picture: prepared(bed, picture / 255), "divided by 255 twice")


FAULT = Fault(
    title="Scale of 255",
    family="preprocessing",
    expected="PRE001",
    subjects=IMAGES,
    repair="preprocess_in_code",
    plant=_plant,
)
