"""Character error rate: edits that turn the candidate's text into the right one, over the right one's length in characters.

Both are pooled over samples (sum of edits over sum of lengths), as speech and text recognition report it. It may exceed
1. A right text of no length counts its edits and adds nothing to the length; with no length at all the rate is 0 for no
edits and infinite otherwise. Labels are strings or token numbers; without labels the reference's text is right.

Outputs may be strings, token numbers or CTC scores, which are decoded greedily (see the options).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.verification.metrics._texts import OPTIONS, edits, truth_and_text
from parityscope.verification.task_metrics import Answer, States, TaskMetric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TASK_METRIC"]


def _score(answers: Iterable[Answer], options: Mapping[str, str]) -> np.ndarray:
    """(edits, length) of each sample: float64 (n, 2)."""
    return np.array([_count(answer, options) for answer in answers], np.float64)


def _count(answer: Answer, options: Mapping[str, str]) -> tuple[int, int]:
    truth, text = truth_and_text(answer, options)
    right, found = truth, text
    return edits(right, found), len(right)


def _rate(counts: States) -> float:
    wrong, length = np.asarray(counts).sum(axis=0)
    return float(wrong / length) if length else 0.0 if wrong == 0 else math.inf


TASK_METRIC = TaskMetric(
    name="cer", title="Character error rate", better="lower", score=_score, combine=_rate, options=OPTIONS
)
