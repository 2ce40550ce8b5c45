"""Mean error with its sign (bias), and mean absolute error.

mean_error = mean(c - r); mean_abs = mean |c - r|, over the pairs in which both values are finite. A mean error as large
as the mean absolute one says that every value moved the same way: a wrong offset, a lost bias, rounding towards zero
(whose mean is -0.72 u where rounding to nearest has none, numerics.md).

Known fault: signed errors cancel, so that a mean error of zero says nothing alone. Where values are non-finite on one
side only, the mean absolute error is infinite and the mean error is NaN: it could be anything.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics, scale_by_power
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    count, moments = max(1, floats.finite), floats.moments
    bias = scale_by_power(moments.error / count, moments.exponent)
    size = scale_by_power(moments.abs_error / count, moments.exponent)
    return (
        Measurement(
            metric="mean_error", value=math.nan if floats.disagreeing else bias, unit="absolute", count=floats.finite
        ),
        Measurement(
            metric="mean_abs", value=math.inf if floats.disagreeing else size, unit="absolute", count=floats.finite
        ),
    )


METRIC = Metric(name="mean_error", unit="absolute", better="lower", perfect=0.0, finish=_finish)
