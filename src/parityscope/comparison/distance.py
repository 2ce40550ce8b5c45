"""One number for how far two tensors are apart, of whatever shape and type they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parityscope.comparison.measure import measure_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.comparison.statistics import Statistics

__all__ = ["distance_between", "error_distance", "largest_distance"]


def error_distance(statistics: Statistics) -> float:
    """The error that grades are about: relative L2 for floats, share of unequal elements for everything else."""
    return statistics.rel_l2 if statistics.is_float else statistics.mismatch_share


def distance_between(reference: np.ndarray, candidate: np.ndarray | None) -> float:
    """`error_distance` of two tensors of any shape and type; infinite where they cannot be compared, or one is not there."""
    if candidate is None or reference.shape != candidate.shape:
        return math.inf
    try:
        return error_distance(measure_pair(reference, candidate, channel_axis=None))
    except ValueError:
        return math.inf


def largest_distance(reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]) -> float:
    """The largest distance of any tensor by its name; infinite where the candidate lacks one, 0 where there are none."""
    return max((distance_between(array, candidate.get(name)) for name, array in reference.items()), default=0.0)
