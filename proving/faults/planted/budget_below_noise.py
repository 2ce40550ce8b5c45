"""A tolerance of a unit test is asked of sums of thousands of terms: FP32 itself does not keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.records import Budget
from proving.faults.planting import answers_of
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proving.faults.records import Bed

    Arrays = Mapping[str, np.ndarray]


def _plant(bed: Bed) -> Plant:
    limit = float(bed.draw.choice([1e-10, 1e-9, 3e-9]))
    budgets = (Budget(output="", metric="rel_l2", limit=limit, reason="copied from a unit test"),)
    found = answers_of(bed.path, bed.samples, "openvino:f32")
    exact = answers_of(bed.path, bed.samples, "ort")
    if max(_together(exact, found, name) for name in exact[0]) <= limit:
        # Where a Softmax is saturated, FP32 keeps what it is asked for.
        raise NoEffectError("the budget is kept")
    return Plant(words=f"rel_l2 below {limit:g}", candidate="openvino:f32", declared="f32", budgets=budgets)


def _together(exact: Sequence[Arrays], found: Sequence[Arrays], name: str) -> float:
    """The relative L2 distance of all samples as one, which the budget is held against."""
    right, other = (np.concatenate([each[name].ravel() for each in side]).astype(np.float64) for side in (exact, found))
    return float(np.linalg.norm(other - right) / np.linalg.norm(right))


FAULT = Fault(
    title="A budget below FP32's noise",
    family="data",
    expected="DAT006",
    repair="raise_budget",
    subjects=("small-long", "small-conv", "small-rows", "ocr-cls", "ocr-rec"),
    plant=_plant,
)
