"""Retrieval recall at k: does a query find what it should among the other samples?

Each sample is one embedding (its output, flattened); each in turn is the query, the others are the gallery, ranked by
cosine in float64 (of equal ones the earlier sample first). All embeddings are the same side's: a deployment indexes with
what it computes. With labels (one integer or string a sample) a query counts 1 if any of its k nearest has its label, and
samples whose label nobody else has are left at 0, as in any recall. Without labels, it counts the share of the
reference's k nearest that are among its own k nearest.

The interval resamples queries; the gallery stays what it is. `k` is 1 unless the option says otherwise. An embedding
with NaN or Inf finds nothing, and nobody finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.task_metrics import (
    TaskAnswer,
    TaskMetric,
    label_of,
    mean_of_numbers,
    number_option,
    output_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    k = int(number_option(options, "k", 1, least=1))
    reference, candidate, labels = [], [], []
    for answer in answers:
        name = output_name(answer, options)
        reference.append(answer.reference[name].astype(np.float64).ravel())
        candidate.append(answer.outputs[name].astype(np.float64).ravel())
        labels.append(_single_label(answer, label_of(answer, options, name)))
    if len(candidate) <= k or len({row.size for row in (*reference, *candidate)}) > 1:
        raise ParityError(
            f"{len(candidate)} embeddings cannot be searched for the {k} nearest of equal length",
            fix="give more samples than k, whose embeddings have one length",
        )
    found = _nearest_rows(np.stack(candidate), k)
    if labels[0] is None:
        wanted = _nearest_rows(np.stack(reference), k)
        shared = (wanted[:, :, None] == found[:, None, :]) & (wanted[:, :, None] >= 0)
        return np.asarray(shared.any(axis=2).mean(axis=1))
    return np.array([any(at >= 0 and labels[at] == labels[i] for at in row) for i, row in enumerate(found)], float)


def _nearest_rows(rows: np.ndarray, k: int) -> np.ndarray:
    """The k nearest others of each row by cosine: int64 (n, k), -1 where there is none."""
    whole = np.isfinite(rows).all(axis=1)
    finite = np.where(whole[:, None], rows, 0.0)
    length = np.linalg.norm(finite, axis=1, keepdims=True)
    unit = np.divide(finite, length, out=np.zeros_like(finite), where=length > 0)
    cosine = unit @ unit.T
    cosine[:, ~whole] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    reachable = np.isfinite(np.take_along_axis(cosine, order, axis=1)) & whole[:, None]
    return np.where(reachable, order, -1)


def _single_label(answer: TaskAnswer, label: np.ndarray | None) -> object:
    if label is None:
        return None
    if label.size != 1:
        raise ParityError(
            f"a sample has labels of shape {list(label.shape)}, not one",
            where=answer.name,
            fix="give one label a sample",
        )
    return label.reshape(-1)[0].item()


TASK_METRIC = TaskMetric(
    name="retrieval_recall",
    title="Retrieval recall at k",
    better="higher",
    score=_score,
    combine=mean_of_numbers,
    options={"k": "how many neighbours (1)"},
)
