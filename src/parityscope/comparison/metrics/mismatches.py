"""How many elements differ at all: for integers, booleans and strings the only honest question.

mismatches counts elements that are not equal, compared before any conversion; mismatch_share is their share; the worst
index is that of the first. `max_abs` gives the largest difference of integers, in integer arithmetic.

Known fault that this answers: int64 indices beyond 2^53 that went through float64 compare equal although they are not.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    exact = statistics.exact
    if exact is None:
        return None
    return (
        Measurement(
            metric="mismatches",
            value=exact.mismatches,
            unit="elements",
            count=statistics.count,
            worst_index=exact.first_mismatch,
        ),
        Measurement(
            metric="mismatch_share",
            value=statistics.mismatch_share,
            unit="share",
            count=statistics.count,
            worst_index=exact.first_mismatch,
        ),
    )


METRIC = Metric(name="mismatches", unit="elements", better="lower", perfect=0.0, finish=_finish)
