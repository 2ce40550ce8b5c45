"""Cosine between the candidate's and the reference's embeddings, averaged over rows.

Rows are the last axis. cos = <r, c> / (|r| |c|) in float64; two zero vectors give 1, one zero vector gives 0. A row with
NaN or Inf that the reference does not have gives -1, the worst a cosine can be: it is not left out. Labels are not used.

Known fault: the cosine sees no change of length; the output's `rel_l2` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.verification.task_metrics import TaskAnswer, TaskMetric, mean_of_numbers, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    return np.array([_mean_cosine(answer, output_name(answer, options)) for answer in answers])


def _mean_cosine(answer: TaskAnswer, name: str) -> float:
    reference, candidate = (np.atleast_1d(side[name]).astype(np.float64) for side in (answer.reference, answer.outputs))
    reference, candidate = reference.reshape(-1, reference.shape[-1]), candidate.reshape(-1, candidate.shape[-1])
    whole = np.isfinite(reference).all(axis=1) & np.isfinite(candidate).all(axis=1)
    found = np.full(len(reference), -1.0)
    first, second = _normalize_rows(reference[whole]), _normalize_rows(candidate[whole])
    product = np.clip((first * second).sum(axis=1), -1.0, 1.0)
    empty = ~first.any(axis=1) & ~second.any(axis=1)
    found[whole] = np.where(empty, 1.0, product)
    return float(found.mean()) if len(found) else 1.0


def _normalize_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; zero rows stay zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 0))


TASK_METRIC = TaskMetric(
    name="embedding_cosine",
    title="Cosine of embeddings with the reference's",
    better="higher",
    score=_score,
    combine=mean_of_numbers,
    uses_labels=False,
)
