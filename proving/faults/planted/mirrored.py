"""The picture is mirrored, stands on its head, or has rows and columns exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    axis = int(bed.draw.choice([2, 3]))
    turned = (slice(None),) * axis + (slice(None, None, -1),)
    words = "upside down" if axis == 2 else "mirrored left to right"
    return prepared_wrongly(bed, lambda picture: prepared(bed, picture[turned]), words)


FAULT = Fault(title="A mirrored picture", family="preprocessing", expected="PRE001", subjects=IMAGES, plant=_plant)
