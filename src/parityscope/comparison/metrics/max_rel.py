"""Largest relative error of an element, and where it is; and how many elements have none, for their reference is zero.

max_rel = max |c - r| / |r| over the pairs in which both are finite and r is not zero; of equal ones the lowest index.
A value that is non-finite on one side only makes it infinite, at that element. zero_references counts the finite pairs
with r = 0, whatever c is there. Where r is zero everywhere, max_rel is 0 if c is too, else infinite.

Known faults: references near zero decide it (1e6 for nothing), and a zero that became 5.0 is not in it. It is what Polygraphy
prints and `rtol` bounds; `max_rel_rms` holds the largest error against the tensor's own scale instead.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    bad = floats.disagreeing > 0
    counted = floats.finite - floats.zero_references
    relative = floats.max_rel if counted or floats.max_abs == 0 else math.inf
    return (
        Measurement(
            metric="max_rel",
            value=math.inf if bad else relative,
            unit="relative",
            count=counted,
            worst_index=floats.first_disagreeing if bad else floats.max_rel_index,
        ),
        Measurement(metric="zero_references", value=floats.zero_references, unit="elements", count=floats.finite),
    )


METRIC = Metric(name="max_rel", unit="relative", better="lower", perfect=0.0, finish=_finish)
