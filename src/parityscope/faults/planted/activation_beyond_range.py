"""Squares and sums of a normalization or of a GELU grow beyond FP16's largest number, and the deployment is FP16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.faults.planting import answers, recorded
from parityscope.faults.ranges import overflowing
from parityscope.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from parityscope.faults.records import Bed

__all__ = ["FAULT"]


def _plant(bed: Bed) -> Plant:
    sites = overflowing(bed)
    if not sites:
        raise NoEffectError("FP16 holds everything")
    way = int(bed.draw.integers(3))
    if way == 0:
        candidate = recorded(bed, answers(bed.path, bed.samples, "f16", inside=True), "f16")
    else:
        candidate = ("sim:f16", "sim:f16?overflow=saturate")[way - 1]
    words = ("recorded", "IEEE overflow", "saturating weights")[way]
    return Plant(words=f"deployed in FP16 ({words})", candidate=candidate, declared="f16", sites=sites)


FAULT = Fault(
    title="An activation beyond FP16",
    family="range",
    expected="RNG002",
    repair="keep_in_fp32",
    subjects=("small-norm", "magika"),
    plant=_plant,
)
