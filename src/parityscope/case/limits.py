"""Whether a number keeps a budget's limit.

`lower` metrics must be at most their limit and `higher` ones at least. Two are two-sided: of `mean_error` the size
counts, of `norm_ratio` the distance from 1. A number that is NaN keeps no limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parityscope.records import Budget

TWO_SIDED = {"mean_error": 0.0, "norm_ratio": 1.0}  # the limit is a distance from this


# Of metrics whose better values are the higher ones: what lies at or below the first every value keeps, and nothing is above
# the second. What is not listed has no ends.
_ENDS = {"cosine": (-1.0, 1.0), "top1_agreement": (0.0, 1.0), "top5_agreement": (0.0, 1.0)}


def mistaken_limit(metric: str, limit: float, better: str) -> str:
    """What is wrong with a limit that everything or nothing keeps, in words; "" if some keep it and some do not."""
    least, most = _ENDS.get(metric, (-math.inf, math.inf))
    if limit < 0 and (better == "lower" or metric in TWO_SIDED):
        return f"can never be met: {metric} is not negative"
    if limit <= least:
        return f"is kept by everything: {metric} is never below {least:g}"
    if limit > most:
        return f"can never be met: {metric} is never above {most:g}"
    return ""


def keeps_limit(value: float, budget: Budget, better: str) -> bool:
    """Whether `value` keeps the budget; `better` says on which side the better values of its metric lie.

    Of a tolerance `value` is the number of elements outside of it, of which less is better whatever `better` says.
    """
    if math.isnan(value):
        return False
    if budget.metric in TWO_SIDED:
        return abs(value - TWO_SIDED[budget.metric]) <= budget.limit
    return value >= budget.limit if better == "higher" and budget.tolerance is None else value <= budget.limit
