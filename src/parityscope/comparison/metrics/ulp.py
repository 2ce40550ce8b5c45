"""Distance in units in the last place of the candidate's dtype: mean and largest.

The reference is rounded to the candidate's dtype and the number of representable values between the two is counted
(`_stretch`): 0 is the best that the dtype can hold; +0 and -0 are one value. Infinite where a value is non-finite on one
side only.

Known fault: right for element-wise operators, wrong for sums. Where a dot product cancels, a million ULP are
legitimate, because the result is small beside what was summed. Nothing is judged by it alone.
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
    mean = floats.ulp / max(1, floats.finite)
    return (
        Measurement(metric="ulp_mean", value=math.inf if bad else mean, unit="ULP", count=floats.finite),
        Measurement(metric="ulp_max", value=math.inf if bad else floats.ulp_max, unit="ULP", count=floats.finite),
    )


METRIC = Metric(name="ulp_mean", unit="ULP", better="lower", perfect=0.0, finish=_finish)
