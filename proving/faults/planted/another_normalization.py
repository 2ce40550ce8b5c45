"""Mean and deviation of another network: ImageNet's, 0.5, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import NORMALS, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    other = str(bed.draw.choice([name for name in NORMALS if name != bed.subject.normal]))
    mean, deviation = NORMALS[other]
    words = f"normalised as {other} in place of {bed.subject.normal}"
    return prepared_wrongly(bed, lambda picture: (picture - mean) / deviation, words)


FAULT = Fault(
    title="Another normalization",
    family="preprocessing",
    expected="PRE001",
    subjects=IMAGES,
    repair="preprocess_in_code",
    plant=_plant,
)
