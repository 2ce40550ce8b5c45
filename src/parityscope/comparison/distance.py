"""One number for how far two tensors are apart, of whatever shape and type they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.measure import measure_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.comparison.statistics import Statistics


_BLOCK = 1 << 15  # numbers that are widened at once, chosen: two of them lie in the L2 cache


def error_distance(statistics: Statistics) -> float:
    """The error that grades are about: relative L2 for floats, share of unequal elements for everything else."""
    return statistics.rel_l2 if statistics.is_float else statistics.mismatch_share


def distance_between(reference: np.ndarray, candidate: np.ndarray | None) -> float:
    """`error_distance` of two tensors of any shape and type; infinite where they cannot be compared, or one is not there."""
    if candidate is None or reference.shape != candidate.shape:
        return math.inf
    if all(array.dtype.kind == "f" and array.dtype.itemsize <= 4 for array in (reference, candidate)):
        error, size = _squared_sums(reference.reshape(-1), candidate.reshape(-1))
        if math.isfinite(error) and size > 0:
            return math.sqrt(error / size)
    try:
        return error_distance(measure_pair(reference, candidate, channel_axis=None))
    except ValueError:
        return math.inf


def _squared_sums(reference: np.ndarray, candidate: np.ndarray) -> tuple[float, float]:
    """The sums of squares of error and reference, (n,) of at most 32 bits; the first is not finite where a number is not.

    All that `measure_pair` keeps beside them would not be looked at. No square of these numbers leaves float64.
    """
    error = size = 0.0
    with np.errstate(invalid="ignore"):  # infinity less infinity
        for start in range(0, reference.size, _BLOCK):
            wide = reference[start : start + _BLOCK].astype(np.float64)
            wrong = candidate[start : start + _BLOCK] - wide
            error += float(wrong @ wrong)
            size += float(wide @ wide)
    return error, size


def largest_distance(reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
    """The largest distance of any tensor by its name; infinite where the candidate lacks one, 0 where there are none."""
    return max((distance_between(array, candidate.get(name)) for name, array in reference.items()), default=0.0)
