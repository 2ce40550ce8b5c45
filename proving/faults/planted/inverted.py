"""White on black is given where black on white was learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.pictures import prepared, prepared_wrongly
from proving.faults.records import Fault
from proving.faults.subjects import IMAGES

if TYPE_CHECKING:
    from proving.faults.records import Bed, Plant


def _plant(bed: Bed) -> Plant:
    return prepared_wrongly(bed, lambda picture: prepared(bed, 1 - picture), "inverted")


FAULT = Fault(title="An inverted picture", family="preprocessing", expected="PRE001", subjects=IMAGES, plant=_plant)
