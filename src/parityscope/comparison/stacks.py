"""measure_stack: many small tensors of one shape and type, measured in one pass, with the distance of each.

A call of the compiled loop, and reading its tables, costs more than a small tensor's elements do. So samples are put one behind
the other, and what is found is what `merge_statistics` of each by itself gives: counts, extremes and histograms exactly, sums to
float64 rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison._layout import channel_axis, exponent_of, flat_row, working_dtype
from parityscope.comparison._merging import merge_statistics
from parityscope.comparison._scores import likely_scores, score_stack
from parityscope.comparison.distance import error_distance
from parityscope.comparison.measure import measure_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.comparison.statistics import Statistics

# Elements of a stack. Chosen: 256 KiB of float32 on each side stay in an L2 cache, and a call is no matter beside them.
MOST_STACKED = 1 << 16


def measure_sample(reference: np.ndarray, candidate: np.ndarray) -> Statistics:
    """The statistics of an output on one sample, its channels and scores where they are taken to lie.

    Raises:
        ValueError: as `measure_pair`.
    """
    return measure_pair(
        reference,
        candidate,
        channel_axis=channel_axis(reference.ndim),
        threads=2,
        as_scores=likely_scores(reference.dtype, reference.shape),
    )


def measure_stack(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> tuple[Statistics, np.ndarray]:
    """The statistics of an output on several samples, and how far it is off on each (`error_distance`), float64 (n,).

    All tensors of a side are of one shape and dtype.

    Raises:
        ValueError: as `measure_pair`.
    """
    if len(reference) > 1 and reference[0].size and reference[0].dtype.kind in "fbiu":
        ours, theirs = np.stack(reference), np.stack(candidate)
        distances = _distances(ours, theirs)
        if distances is not None:
            return _measure_together(ours, theirs), distances
    total: Statistics | None = None
    found = []
    for pair in zip(reference, candidate, strict=True):
        one = measure_sample(*pair)
        found.append(error_distance(one))
        total = one if total is None else merge_statistics(total, one)
    if total is None:
        raise ValueError("there is no sample in a stack")
    return total, np.array(found)


def _measure_together(ours: np.ndarray, theirs: np.ndarray) -> Statistics:
    """Arrays (n, ...) as n samples: places are told within their own sample."""
    count, shape = len(ours), ours.shape[1:]
    axis = channel_axis(len(shape))
    found = measure_pair(ours, theirs, channel_axis=None if axis is None else axis + 1)
    if found.floats is not None:
        at, first = found.floats.max_index, found.floats.first_disagreeing
        found = replace(
            found, floats=replace(found.floats, max_index=at and at[1:], first_disagreeing=first and first[1:])
        )
    if found.exact is not None:
        at, first = found.exact.max_index, found.exact.first_mismatch
        found = replace(found, exact=replace(found.exact, max_index=at and at[1:], first_mismatch=first and first[1:]))
    channels = found.channels and replace(found.channels, axis=found.channels.axis - 1)
    scores = score_stack(ours, theirs) if likely_scores(ours.dtype, shape) else None
    return replace(found, shape=shape, samples=count, channels=channels, scores=scores)


def _distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray | None:
    """`error_distance` of each sample; None where their squares need a unit of their own, which no stack has.

    Raises:
        ValueError: the two are of other kinds.
    """
    if ours.dtype.kind != "f" or theirs.dtype.kind != "f":
        if theirs.dtype.kind not in "biu" or (theirs.dtype.kind == "b") != (ours.dtype.kind == "b"):
            return None  # the error is told where one is measured by itself
        return np.asarray((ours != theirs).reshape(len(ours), -1).mean(axis=1))
    wide = working_dtype(ours.dtype, theirs.dtype) == np.float64
    if wide and any(exponent_of(*map(flat_row, pair)) for pair in zip(ours, theirs, strict=True)):
        return None
    with np.errstate(invalid="ignore"):  # signalling NaN; the others are counted below
        r, c = (side.reshape(len(side), -1).astype(np.float64) for side in (ours, theirs))
        error = c - r
        errors, references = np.einsum("ij,ij->i", error, error), np.einsum("ij,ij->i", r, r)
    if not np.isfinite(errors + references).all():
        finite = np.isfinite(r) & np.isfinite(c)
        apart = ~finite & ~((r == c) | (np.isnan(r) & np.isnan(c)))
        error, r = np.where(finite, error, 0.0), np.where(finite, r, 0.0)
        errors, references = np.einsum("ij,ij->i", error, error), np.einsum("ij,ij->i", r, r)
        errors[apart.any(axis=1)] = np.inf
    found = np.zeros(len(r))
    wrong = errors > 0
    with np.errstate(divide="ignore"):
        found[wrong] = np.sqrt(errors[wrong] / references[wrong])
    return found
