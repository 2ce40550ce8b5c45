"""Ranked classes: which are the best k of each row, and whether a target is among them.

A row is the last axis of an output. Of equal scores the lowest class counts as the larger one. A row with a NaN has no
ranking: nothing in it is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.task_metrics import label_of, output_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from parityscope.verification.task_metrics import TaskAnswer


def best_classes(scores: np.ndarray, k: int) -> np.ndarray:
    """The k best classes of each row, best first: (..., classes) -> int64 (rows, k); -1 in a row that holds a NaN."""
    rows = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k].astype(np.int64)
    order[np.isnan(rows).any(axis=1)] = -1
    return order


def among_best(k: int) -> Callable[[Iterable[TaskAnswer], Mapping[str, str]], np.ndarray]:
    """The `score` of a metric: the share of rows whose right class is among the k best, float64 (n,)."""

    def score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
        return np.array([share(answer, options) for answer in answers])

    def share(answer: TaskAnswer, options: Mapping[str, str]) -> float:
        name = output_name(answer, options)
        label = label_of(answer, options, name)
        targets, classes = targets_of(answer, label, name), answer.reference[name].shape[-1]
        wrong = targets[(targets < 0) | (targets >= classes)] if label is not None else targets[:0]
        if len(wrong):
            raise ParityError(
                f"the labels of {name!r} hold the class {wrong[0]}, and there are 0 to {classes - 1}",
                where=answer.name,
                fix="give labels of this model's classes",
            )
        return share_right(answer.outputs[name], targets, k)

    return score


def share_right(scores: np.ndarray, targets: np.ndarray, k: int) -> float:
    """The share of rows whose target, int64 (rows,), is among their k best; 1 for no rows."""
    found = best_classes(scores, k)
    return float((found == targets[:, None]).any(axis=1).mean()) if len(found) else 1.0


def targets_of(answer: TaskAnswer, label: np.ndarray | None, output: str) -> np.ndarray:
    """The right class of each row, int64 (rows,): the labels, or the reference's best class (-2, never right, where it has none).

    Raises:
        ParityError: the output has no axis of classes, or the labels are not one class a row.
    """
    expected = answer.reference[output]
    if expected.ndim == 0 or expected.shape[-1] < 2:
        raise ParityError(
            f"output {output!r} of shape {list(expected.shape)} has no classes on its last axis",
            where=answer.name,
            fix="choose another with ?output=NAME",
        )
    if label is None:
        chosen = best_classes(expected, 1)[:, 0]
        return np.where(chosen < 0, -2, chosen)
    rows = expected.size // expected.shape[-1]
    if label.dtype.kind not in "iu" or label.size != rows:
        raise ParityError(
            f"the labels of {output!r} are {label.dtype} of shape {list(label.shape)}, not {rows} class numbers",
            where=answer.name,
            fix="give one integer class a row, or choose the array with ?label=NAME",
        )
    return label.reshape(-1).astype(np.int64)
