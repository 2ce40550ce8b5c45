"""Perplexity of a language model: exp of the mean negative log-likelihood of the next token.

The output is logits, (..., tokens, vocabulary); log-softmax in float64. Labels are the token that each row should give,
integers of as many rows, -100 where a row does not count; `shift=1` takes the token after the row's own instead (labels
are then the input ids). Without labels the reference's most likely token is the target, so that the number says how far
the candidate's confidence in the reference's choices moved. A row with a NaN, or all of it -Inf, makes it infinite.

Known fault: a few certain mistakes outweigh everything; the interval says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError
from parityscope.verification.metrics._ranking import targets_of
from parityscope.verification.task_metrics import States, TaskAnswer, TaskMetric, label_of, number_option, output_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_IGNORED = -100  # the label that PyTorch's cross entropy leaves out


def _score(answers: Iterable[TaskAnswer], options: Mapping[str, str]) -> np.ndarray:
    """(sum of negative log-likelihoods, rows) of each sample: float64 (n, 2)."""
    shift = int(number_option(options, "shift", 0))
    return np.array([_sum_losses(answer, options, shift) for answer in answers])


def _sum_losses(answer: TaskAnswer, options: Mapping[str, str], shift: int) -> tuple[float, float]:
    name = output_name(answer, options)
    label = label_of(answer, options, name)
    targets = targets_of(answer, label, name)
    logits = answer.outputs[name].astype(np.float64)
    if shift and label is not None:
        steps = logits.shape[-2] if logits.ndim > 1 else 1
        targets = targets.reshape(-1, steps)[:, shift:].ravel()
        logits = logits.reshape(-1, steps, logits.shape[-1])[:, : max(0, steps - shift)]
    rows = logits.reshape(-1, logits.shape[-1])
    counted = targets >= 0 if label is None else targets != _IGNORED
    rows, targets = rows[counted], targets[counted]
    if targets.size and not 0 <= targets.min() <= targets.max() < rows.shape[1]:
        raise ParityError(
            f"a label of {name!r} is no token of a vocabulary of {rows.shape[1]}",
            where=answer.name,
            fix="give token numbers, and -100 for rows that do not count",
        )
    likelihood = _log_softmax(rows)[np.arange(len(rows)), targets]
    return float(np.where(np.isnan(likelihood), math.inf, -likelihood).sum()), float(len(rows))


def _log_softmax(rows: np.ndarray) -> np.ndarray:
    """log(exp(x) / sum exp(x)) of each row, the largest taken off first."""
    with np.errstate(invalid="ignore", divide="ignore"):  # infinities become NaN, which counts as infinite loss
        lowered = rows - rows.max(axis=1, keepdims=True)
        return np.asarray(lowered - np.log(np.exp(lowered).sum(axis=1, keepdims=True)))


def _perplexity_of_losses(losses: States) -> float:
    total, rows = np.asarray(losses).sum(axis=0)
    if not rows:
        return 1.0
    mean = total / rows
    return math.exp(mean) if mean < 700 else math.inf  # exp(709) is float64's largest


TASK_METRIC = TaskMetric(
    name="perplexity",
    title="Perplexity",
    better="lower",
    score=_score,
    combine=_perplexity_of_losses,
    options={"shift": "labels are input ids: the target of a row is so many tokens later (0)"},
)
