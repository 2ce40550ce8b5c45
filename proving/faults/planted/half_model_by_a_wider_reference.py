"""A float16 model is judged against ONNX Runtime's CPU provider, which computes it in FP32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.records import Budget
from proving.faults.records import Fault, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    limit = float(bed.draw.choice([1e-6, 1e-5, 3e-5]))
    budgets = (Budget(output="", metric="rel_l2", limit=limit, reason="what FP32 keeps"),)
    return Plant(words=f"judged by rel_l2 {limit:g}", candidate="sim", declared="f32", budgets=budgets)


FAULT = Fault(
    title="A half-precision model against a wider reference",
    family="data",
    expected="DAT009",
    subjects=("small-half",),
    plant=_plant,
)
