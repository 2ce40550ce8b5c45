"""Rows of scores (the last axis): do both sides choose the same classes, and how far apart are the distributions?

A tensor whose reference rows all lie in [0, 1] and sum to one (within the rounding of its dtype) is taken as
probabilities; anything else as logits, through a softmax in float64. Which of the two is decided by the reference for
both sides: a candidate that forgot its softmax must show.

Ties go to the lowest index on both sides (as in numpy.argmax), so that the result does not depend on a sort's whims.
A row with NaN or +Inf has no distribution: it counts as agreeing where both sides are identical, else as a
disagreement of infinite divergence. -Inf is a class that is excluded, as masks write it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parityscope.light_dataclasses import dataclass, replace

SCORE_AXIS = (2, 100_000)  # classes; chosen: one score is no choice, and beyond this the axis is no vocabulary
# (batch, class) or (batch, position, class); a map of rank 4 has pixels on its last axis, not classes.
_MOST_AXES = 3
_TOP = 5
_ROWS_AT_ONCE = 1 << 18  # elements: 2 MiB of float64 on each side
# Rounding n probabilities moves their sum by a random walk of steps of u (their own rounding, and that of the softmax
# that made them): 8 u sqrt(n) holds it (Higham and Mary, SISC 41, 2019, with lambda = 8).
_SUM_UNITS = 8.0
_SUM_LIMIT = 0.05  # chosen: where the rounding unit is so large that almost any sum would do (FP16, 100,000 classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Sums over rows. `top5` counts shares: of the reference's top five classes those among the candidate's."""

    rows: int
    top1: int
    top5: float
    divergence: float
    divergence_max: float
    worst_row: tuple[int, ...] | None
    probabilities: bool


def can_be_scores(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether the last axis can be one of scores: floats, 2 to 100,000 of them."""
    from parityscope.comparison._layout import kind_of

    return bool(shape) and SCORE_AXIS[0] <= shape[-1] <= SCORE_AXIS[1] and kind_of(dtype) == "float"


def likely_scores(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether a tensor is taken for scores where nobody says what it holds."""
    return len(shape) <= _MOST_AXES and can_be_scores(dtype, shape)


def sum_tolerance(dtype: np.dtype[Any], classes: int) -> float:
    """How far from one so many probabilities of `dtype` may sum."""
    return min(_SUM_LIMIT, _SUM_UNITS * _unit_roundoff(dtype) * math.sqrt(classes))


def score_rows(reference: np.ndarray, candidate: np.ndarray) -> Scores:
    """Compares the rows of two tensors of any float dtype and one shape, (..., classes)."""
    classes = reference.shape[-1]
    rows = [array.reshape(-1, classes) for array in (reference, candidate)]
    step = max(1, _ROWS_AT_ONCE // classes)
    starts = range(0, rows[0].shape[0], step)
    probabilities = len(starts) > 0 and all(
        _are_probabilities(_as_float64(rows[0][at : at + step]), reference.dtype) for at in starts
    )
    smallest = _smallest_subnormal(candidate.dtype)
    total = Scores(
        rows=0, top1=0, top5=0.0, divergence=0.0, divergence_max=0.0, worst_row=None, probabilities=probabilities
    )
    for at in starts:
        block = _score_block(
            _as_float64(rows[0][at : at + step]),
            _as_float64(rows[1][at : at + step]),
            probabilities=probabilities,
            smallest=smallest,
        )
        total = _add_block(total, block, at, reference.shape[:-1])
    return total


def score_stack(reference: np.ndarray, candidate: np.ndarray) -> Scores | None:
    """As `merge_scores` of each sample of two arrays (n, ..., classes); whether they are probabilities each says for itself."""
    wide = _as_float64(reference).reshape(len(reference), -1, reference.shape[-1])
    inside = (wide.min(axis=(1, 2)) >= 0) & (wide.max(axis=(1, 2)) <= 1)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, which are no probabilities
        off = np.abs(wide.sum(axis=2) - 1).max(axis=1)
    are = inside & (off <= sum_tolerance(reference.dtype, reference.shape[-1]))
    if are.all() or not are.any():
        found = score_rows(reference, candidate)
        return replace(found, worst_row=found.worst_row and found.worst_row[1:])
    total: Scores | None = None
    for pair in zip(reference, candidate, strict=True):
        one = score_rows(*pair)
        total = one if total is None else merge_scores(total, one)
    return total


def merge_scores(first: Scores | None, second: Scores | None) -> Scores | None:
    """Sums over the rows of both; None where one has none."""
    if first is None or second is None:
        return None
    larger = second if second.divergence_max > first.divergence_max or first.worst_row is None else first
    return Scores(
        rows=first.rows + second.rows,
        top1=first.top1 + second.top1,
        top5=first.top5 + second.top5,
        divergence=first.divergence + second.divergence,
        divergence_max=larger.divergence_max,
        worst_row=larger.worst_row,
        probabilities=first.probabilities and second.probabilities,
    )


def _add_block(
    total: Scores, block: tuple[np.ndarray, np.ndarray, np.ndarray], at: int, shape: tuple[int, ...]
) -> Scores:
    top1, top5, divergence = block
    worst = int(np.argmax(divergence))
    index = tuple(int(i) for i in np.unravel_index(at + worst, shape)) if shape else ()
    found = Scores(
        rows=top1.size,
        top1=int(top1.sum()),
        top5=float(top5.sum()),
        divergence=float(divergence.sum()),
        divergence_max=float(divergence[worst]),
        worst_row=index,
        probabilities=total.probabilities,
    )
    merged = merge_scores(total, found)
    return found if merged is None else merged


def _score_block(
    reference: np.ndarray, candidate: np.ndarray, *, probabilities: bool, smallest: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(top-1 agrees, share of the top five, divergence), each (rows,), of float64 blocks (rows, classes)."""
    broken = _rows_without_distribution(reference) | _rows_without_distribution(candidate)
    same = np.all((reference == candidate) | (np.isnan(reference) & np.isnan(candidate)), axis=1)
    top1 = np.where(broken, same, np.argmax(reference, axis=1) == np.argmax(candidate, axis=1))
    top5 = np.where(
        broken, same.astype(np.float64), _shared_top_five(_mark_top_five(reference), _mark_top_five(candidate))
    )
    divergence = np.where(same, 0.0, np.inf)
    whole = ~broken & ~same
    if whole.any():
        divergence[whole] = _kullback_leibler(
            reference[whole], candidate[whole], probabilities=probabilities, smallest=smallest
        )
    return top1, top5, divergence


def _rows_without_distribution(rows: np.ndarray) -> np.ndarray:
    none = np.isnan(rows).any(axis=1) | (rows == np.inf).any(axis=1)
    return np.asarray(none | (rows == -np.inf).all(axis=1))


def _mark_top_five(rows: np.ndarray) -> np.ndarray:
    """Marks the five largest of each row (all, where there are fewer); of equal ones those that come first."""
    k = min(_TOP, rows.shape[1])
    kth = np.partition(rows, rows.shape[1] - k, axis=1)[:, rows.shape[1] - k, None]
    larger = rows > kth
    equal = rows == kth
    left = k - larger.sum(axis=1, keepdims=True)
    return np.asarray(larger | (equal & (np.cumsum(equal, axis=1) <= left)))


def _shared_top_five(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray((one & other).sum(axis=1) / np.maximum(one.sum(axis=1), 1))


def _kullback_leibler(
    reference: np.ndarray, candidate: np.ndarray, *, probabilities: bool, smallest: float
) -> np.ndarray:
    """Kullback-Leibler divergence sum p ln(p / q) of the candidate's q from the reference's p, in nats.

    A candidate's probability of zero says only that it is less than the smallest number of its dtype, which is put in
    its place: FP16 cannot hold the 1e-9 of an unlikely class, and that alone must not make the divergence infinite.
    """
    if probabilities:
        p, q = reference, np.maximum(candidate, smallest)
        logs = np.log(np.where(p > 0, p, 1.0)) - np.log(q)
        # The last two terms are those of unnormalised measures: rows that sum to 1 + u must not come out below 0.
        terms = np.where(p > 0, p * logs, 0.0) - p + np.maximum(candidate, 0.0)
        return np.asarray(np.maximum(terms.sum(axis=1), 0.0))
    p_log, q_log = _log_softmax(reference), _log_softmax(candidate)
    p = np.exp(p_log)
    with np.errstate(invalid="ignore"):  # an excluded class on both sides: -inf less -inf, where p is zero
        terms = np.where(p > 0, p * (p_log - q_log), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=1), 0.0))


def _log_softmax(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # float64 logits further apart than float64 reaches: the lower one is excluded
        shifted = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _are_probabilities(rows: np.ndarray, dtype: np.dtype[Any]) -> bool:
    inside = ((rows >= 0) & (rows <= 1)).all()
    return bool(inside and (np.abs(rows.sum(axis=1) - 1) <= sum_tolerance(dtype, rows.shape[1])).all())


def _as_float64(rows: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return rows.astype(np.float64)


def _unit_roundoff(dtype: np.dtype[Any]) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps) / 2


def _smallest_subnormal(dtype: np.dtype[Any]) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).smallest_subnormal)
