"""Scales that were folded both ways: by the balanced exponents, and by the least that bring the tensors into range.

`scale_into_range` goes beyond the least exponent where a weight behind is still subnormal with it, by the ranges alone.
Whether that is better for the outputs is measured: both copies are run with everything low on the search samples, and
the one whose worst error is smaller is searched. It takes two evaluations, where the two copies differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.errors import ParityError
from parityscope.evaluation.simulating import open_simulation
from parityscope.repairs.search.judging import worst_excess
from parityscope.repairs.search.staging import stage_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.case import Inputs, Model
    from parityscope.repairs.search.judging import Yardstick
    from parityscope.repairs.search.records import RangeEdit, RepairTask

__all__ = ["FoldedCopy", "choose_folding", "worst_all_low"]

_SCALE = "scale_into_range"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedCopy:
    """The copy with the better exponents, and the evaluations that it took to tell."""

    model: Model
    edits: tuple[RangeEdit, ...]
    evaluations: int


def choose_folding(
    task: RepairTask,
    search: Inputs,
    references: Sequence[Mapping[str, np.ndarray]],
    held: Yardstick,
    found: tuple[Model, tuple[RangeEdit, ...]],
    folder: Path,
) -> FoldedCopy:
    """The copy that was `found` with these edits, or the one with the least exponents, whichever is better low.

    Raises:
        ParityError: the runtime refuses the copy that was found.
    """
    model, edits = found
    least = tuple(
        replace(one, details={**one.details, "balance": False}) if one.repair == _SCALE else one for one in edits
    )
    if least == edits:
        return FoldedCopy(model=model, edits=edits, evaluations=0)
    try:
        other = stage_model(task.model, least, folder, "least")
    except ParityError:  # a repair behind it does not apply any more
        return FoldedCopy(model=model, edits=edits, evaluations=0)
    if other.sha256 == model.sha256:
        return FoldedCopy(model=model, edits=edits, evaluations=0)
    balanced, bare = (worst_all_low(one, task, search, references, held) for one in (model, other))
    if balanced <= bare:
        return FoldedCopy(model=model, edits=edits, evaluations=2)
    return FoldedCopy(model=other, edits=least, evaluations=2)


def worst_all_low(
    model: Model, task: RepairTask, search: Inputs, references: Sequence[Mapping[str, np.ndarray]], held: Yardstick
) -> float:
    """The worst excess over the search samples with everything low; infinite where an output is not finite.

    Raises:
        ParityError: the runtime refuses the simulation.
    """
    run = open_simulation(arrange_precision(model.graph(), task.labels.storage), threads=task.threads)
    return max(
        worst_excess(held, reference, run(sample.arrays)) for sample, reference in zip(search, references, strict=True)
    )
