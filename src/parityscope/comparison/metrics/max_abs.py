"""Largest absolute error, and where it is.

max_abs = max |c - r|, in the tensor's own unit; of equal ones the lowest index. Exact for integers and booleans (in
integer arithmetic). A value that is non-finite on one side only makes it infinite, at that element; `max_abs_finite` is
over the pairs in which both are finite.

Known faults: one element decides, the number grows with the size of the tensor, and it has the tensor's unit, so that
no fixed threshold fits two tensors. It is therefore shown with its index, beside `max_rel_rms` and `outlier_energy`,
which say whether it is one element or all of them.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> Measurement | tuple[Measurement, ...] | None:
    exact, floats = statistics.exact, statistics.floats
    if exact is not None and exact.max_difference is not None:
        return Measurement(
            metric="max_abs",
            value=exact.max_difference,
            unit="absolute",
            count=statistics.count,
            worst_index=exact.max_index,
        )
    if floats is None:
        return None
    finite = Measurement(
        metric="max_abs_finite",
        value=floats.max_abs,
        unit="absolute",
        count=floats.finite,
        worst_index=floats.max_index,
    )
    whole = Measurement(
        metric="max_abs",
        value=math.inf if floats.disagreeing else floats.max_abs,
        unit="absolute",
        count=statistics.count,
        worst_index=floats.first_disagreeing if floats.disagreeing else floats.max_index,
    )
    return whole, finite


METRIC = Metric(name="max_abs", unit="absolute", better="lower", perfect=0.0, finish=_finish)
