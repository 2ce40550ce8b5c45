"""Top-1 accuracy: the share of rows whose right class is among the 1 best.

Rows are the last axis of the output; a batch or a sequence has several. Right is the label (one integer class a row) or,
without labels, the reference's own choice. With one row a sample, McNemar's exact test compares the decisions.

Known faults: coarse for few samples, and blind to how sure a choice is; look at the output's `kl_mean` beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.verification.metrics._ranking import share_right, targets_of
from parityscope.verification.task_metrics import Answer, States, TaskMetric, label_of, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TASK_METRIC"]


def _score(answers: Iterable[Answer], options: Mapping[str, str]) -> np.ndarray:
    return np.array([_share(answer, options) for answer in answers])


def _share(answer: Answer, options: Mapping[str, str]) -> float:
    name = output_name(answer, options)
    return share_right(answer.outputs[name], targets_of(answer, label_of(answer, options, name), name), 1)


def _mean(shares: States) -> float:
    return float(np.mean(shares))


TASK_METRIC = TaskMetric(name="top1", title="Top-1 accuracy", better="higher", score=_score, combine=_mean)
