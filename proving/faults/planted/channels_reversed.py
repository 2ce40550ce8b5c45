"""OpenCV reads BGR, the network was trained on RGB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    return prepared_wrongly(bed, lambda picture: prepared(bed, picture[:, ::-1]), "BGR for RGB")


FAULT = Fault(
    title="BGR for RGB",
    family="preprocessing",
    expected="PRE001",
    subjects=IMAGES,
    repair="preprocess_in_code",
    plant=_plant,
)
