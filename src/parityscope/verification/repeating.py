"""Samples with the same inputs: judged once, and told where their labels contradict each other.

Intervals and budgets take samples for drawn one by one; a copy adds nothing. Where labels of the same inputs differ, at most
one of them can be right: such samples are all judged, as they were labelled, and named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.equal_samples import repeats_of
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.case import Case
    from parityscope.verification.labels import SampleLabels

__all__ = ["drop_repeated"]


def drop_repeated(case: Case, labels: SampleLabels | None) -> tuple[Case, tuple[Skip, ...]]:
    """The case without samples that repeat another one's inputs and labels, and what there is to say.

    Raises:
        ParityError: a sample or its labels cannot be read.
    """
    repeats = repeats_of(case.inputs)
    torn = [
        (index, first)
        for index, first in repeats.items()
        if labels is not None and _labels_differ(case, labels, index, first)
    ]
    kept = {index for index, _ in torn}
    copies = {index: first for index, first in repeats.items() if index not in kept}
    told = []
    if torn:
        index, first = torn[0]
        told.append(
            Skip(
                what=f"whether {_count_samples(len(torn))} can be right",
                reason=f"their inputs are those of another one, and their labels are not: {_name_both(case, first, index)}",
                fix="correct the labels: no model can give two answers to one question",
            )
        )
    if copies:
        index, first = next(iter(copies.items()))
        told.append(
            Skip(
                what=_count_samples(len(copies)),
                reason=f"the same inputs as another one, which is judged: {_name_both(case, first, index)}",
            )
        )
    left = tuple(index for index in case.inputs.indices if index not in copies)
    return (replace(case, inputs=replace(case.inputs, indices=left)) if copies else case), tuple(told)


def _labels_differ(case: Case, labels: SampleLabels, index: int, first: int) -> bool:
    one, other = (_labels_of_sample(case, labels, place) for place in (index, first))
    return one.keys() != other.keys() or any(not np.array_equal(one[name], other[name]) for name in one)


def _labels_of_sample(case: Case, labels: SampleLabels, index: int) -> Mapping[str, np.ndarray]:
    return labels.read(index, case.inputs.sample(index).name)


def _name_both(case: Case, first: int, index: int) -> str:
    return f"{case.inputs.sample(first).name} and {case.inputs.sample(index).name}, say"


def _count_samples(number: int) -> str:
    return f"{number} sample{'' if number == 1 else 's'}"
