"""Top-k agreement: the share of the reference's k best classes that are among the candidate's k best.

Averaged over rows, in any order within the k. It needs no labels and takes none. `k` is 5 unless the option says
otherwise, and the number of classes where there are fewer. A row in which a side has a NaN agrees in nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.metrics._ranking import best_classes
from parityscope.verification.task_metrics import TaskAnswer, TaskMetric, mean_of_numbers, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    wanted = int(number_option(options, "k", 5, least=1))
    return np.array([_share_agreed(answer, options, wanted) for answer in answers])


def _share_agreed(answer: TaskAnswer, options: Mapping[str, str], wanted: int) -> float:
    name = output_name(answer, options)
    expected = answer.reference[name]
    if expected.ndim == 0:
        raise ParityError(f"output {name!r} is a scalar and has no classes", fix="choose another with ?output=NAME")
    if "k" in options and wanted > expected.shape[-1]:
        raise ParityError(
            f"k = {wanted:.3g} is more than the {expected.shape[-1]} classes of {name!r}, which always agree",
            where=answer.name,
            fix="give a smaller k",
        )
    reference, candidate = best_classes(expected, wanted), best_classes(answer.outputs[name], wanted)
    shared = (reference[:, :, None] == candidate[:, None, :]) & (reference[:, :, None] >= 0)
    return float(shared.any(axis=2).mean()) if reference.size else 1.0


TASK_METRIC = TaskMetric(
    name="topk_agreement",
    title="Top-k agreement with the reference",
    better="higher",
    score=_score,
    combine=mean_of_numbers,
    options={"k": "how many classes (5)"},
    uses_labels=False,
)
