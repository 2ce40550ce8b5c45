"""Whether a number keeps a budget's limit.

`lower` metrics must be at most their limit and `higher` ones at least. Two are two-sided: of `mean_error` the size
counts, of `norm_ratio` the distance from 1. A number that is NaN keeps no limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.records import Budget

__all__ = ["TWO_SIDED", "keeps"]

TWO_SIDED = {"mean_error": 0.0, "norm_ratio": 1.0}  # the limit is a distance from this


def keeps(value: float, budget: Budget, better: str) -> bool:
    """Whether `value` keeps the budget; `better` says on which side the better values of its metric lie.

    Of a tolerance `value` is the number of elements outside of it, of which less is better whatever `better` says.
    """
    if math.isnan(value):
        return False
    if budget.metric in TWO_SIDED:
        return abs(value - TWO_SIDED[budget.metric]) <= budget.limit
    return value >= budget.limit if better == "higher" and budget.tolerance is None else value <= budget.limit
