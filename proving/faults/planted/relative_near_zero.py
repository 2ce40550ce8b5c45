"""A relative tolerance is held against elements that are nearly zero, where the rounding of their terms is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.records import Budget, Tolerance
from proving.faults.planting import answers, live
from proving.faults.records import Fault, NoEffectError, Plant

if TYPE_CHECKING:
    from proving.faults.records import Bed


def _plant(bed: Bed) -> Plant:
    exact, found = answers(bed.path, bed.samples), answers(bed.path, bed.samples, "bf16")
    name = max(exact[0], key=lambda one: exact[0][one].size)
    ratios = []
    for mine, its in zip(exact, found, strict=True):
        one, other = mine[name].astype(np.float64), its[name].astype(np.float64)
        large = np.abs(one) >= 0.01 * np.sqrt(np.mean(one**2))
        ratio = np.abs(other - one) / np.maximum(np.abs(one), 1e-300)
        ratios.append((ratio[large].max(), ratio[~large].max(initial=0.0)))
    # The tolerance lies between what ordinary elements keep and what those near nought break.
    least, most = max(pair[0] for pair in ratios), max(pair[1] for pair in ratios)
    if not 2 * least < most:
        raise NoEffectError("no element is nearly nought")
    tolerance = Tolerance(atol=0.0, rtol=float(np.sqrt(least * most)))
    budgets = (Budget(output=name, metric="outside", limit=0, reason="copied", tolerance=tolerance),)
    return Plant(words=f"rtol {tolerance.rtol:.2g}", candidate=live("bf16"), declared="bf16", budgets=budgets)


FAULT = Fault(
    title="A relative tolerance near zero",
    family="data",
    expected="DAT008",
    repair="judge_the_whole",
    subjects=("small-map", "small-encoder", "ocr-rec", "minilm-i8"),
    plant=_plant,
)
