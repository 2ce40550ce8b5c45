"""Mean and deviation are applied in the order of channels of the other library, or only one of the two is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import normal_of, prepared_wrongly
from proving.faults.records import Fault

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    mean, deviation = normal_of(bed)
    way = int(bed.draw.integers(3))
    if way == 0 and bed.subject.normal == "imagenet":
        return prepared_wrongly(bed, lambda picture: (picture - mean[:, ::-1]) / deviation[:, ::-1], "mean reversed")
    if way == 1:
        return prepared_wrongly(bed, lambda picture: picture - mean, "not divided by the deviation")
    return prepared_wrongly(bed, lambda picture: picture / deviation, "mean not subtracted")


FAULT = Fault(
    title="Half a normalization",
    family="preprocessing",
    expected="PRE001",
    subjects=("ocr-det", "ocr-cls", "ocr-rec", "lite0", "ocr-npm-cls"),
    plant=_plant,
)
