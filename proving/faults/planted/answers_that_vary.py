"""A race: a program gives another answer each time, by more than any arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.planting import program
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    size = float(bed.draw.choice([0.01, 0.05, 0.3]))
    noise = f"1 + {size} * np.random.default_rng().normal(size=array.shape)"
    lines = f"outputs = {{name: (array * ({noise})).astype(array.dtype) for name, array in outputs.items()}}"
    return Plant(words=f"every answer varies by {size:g}", candidate=program(bed, after=lines))


FAULT = Fault(
    title="Answers that vary",
    family="arithmetic",
    expected="RUN001",
    repair="determinism",
    subjects=("small-two", "small-map", "small-rows", "small-conv"),
    plant=_plant,
)
