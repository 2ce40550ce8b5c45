"""Which row is which: the assignment of rows to columns that costs least together."""

from __future__ import annotations

import numpy as np

__all__ = ["assign_rows"]


def assign_rows(costs: np.ndarray) -> np.ndarray:
    """The column of each row, every column once, for the least sum of `costs` (float, rows by columns, square)."""
    nearest: np.ndarray = costs.argmin(1)
    if np.unique(nearest).size == nearest.size:
        return nearest  # each row has its least, so that no sum is less
    from scipy.optimize import linear_sum_assignment  # a third of a second to import, and not always asked

    return np.asarray(linear_sum_assignment(costs)[1])
