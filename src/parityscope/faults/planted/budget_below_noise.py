"""A tolerance of a unit test is asked of sums of thousands of terms: FP32 itself does not keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.faults.records import Fault, Plant
from parityscope.records import Budget

if TYPE_CHECKING:
    from parityscope.faults.records import Bed

__all__ = ["FAULT"]


def _plant(bed: Bed) -> Plant:
    limit = float(bed.draw.choice([1e-10, 1e-9, 3e-9]))
    budgets = (Budget(output="", metric="rel_l2", limit=limit, reason="copied from a unit test"),)
    return Plant(words=f"rel_l2 below {limit:g}", candidate="openvino:f32", declared="f32", budgets=budgets)


FAULT = Fault(
    title="A budget below FP32's noise",
    family="data",
    expected="DAT006",
    subjects=("small-long", "small-conv", "small-rows", "ocr-cls", "ocr-rec"),
    plant=_plant,
)
