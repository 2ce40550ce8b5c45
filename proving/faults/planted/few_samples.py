"""Two or three samples within a budget are taken for a proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.records import Budget
from proving.faults.planting import base_of, live
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    base = base_of(bed)
    limit = float(bed.draw.choice([0.2, 0.3, 0.5]))
    budgets = (Budget(output="", metric="rel_l2", limit=limit, reason="what the task bears"),)
    return Plant(words=f"{len(bed.samples)} samples ({base})", candidate=live(base), declared=base, budgets=budgets)


FAULT = Fault(
    title="Too few samples",
    family="data",
    expected="DAT005",
    subjects=("small-two", "small-conv", "small-encoder", "ocr-cls", "vad-18"),
    plant=_plant,
    informs=True,
)
