"""Is it a few elements or all of them? Share of outliers, and the energy of the largest error.

outlier_share = share of elements whose |error| exceeds 8 times the RMS error. Chebyshev's inequality bounds it by 1/64
for any distribution, and a Gaussian has 1e-15 of its errors there: a share above that says that a few elements carry
the error. It is read from the sketch: an element within one bin (1.6 %) above the limit may not be counted, and none
below it is. Values that are non-finite on one side only are outliers.

outlier_energy = max |e|^2 / sum e^2, the share of the squared error that the single largest error carries: 1 if that
element is all there is, 1/n if errors are equal, 0 if there are none. NaN where a value is non-finite on one side only.

Known fault that this answers: relative L2 cannot tell one element of 2.36 million that is off by 251 from noise
everywhere.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics, scale_by_power
from parityscope.records import Measurement

OUTLIER_RMS = 8.0  # chosen: Chebyshev's bound is then 1/64


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    moments = floats.moments
    beyond = floats.disagreeing
    energy = 0.0
    if moments.error2 > 0:
        rms = scale_by_power(math.sqrt(moments.error2 / floats.finite), moments.exponent)
        beyond += floats.sketch.above(OUTLIER_RMS * rms)
        energy = min(1.0, scale_by_power(floats.max_abs, -moments.exponent) ** 2 / moments.error2)
    return (
        Measurement(
            metric="outlier_share", value=beyond / max(1, statistics.count), unit="share", count=statistics.count
        ),
        Measurement(
            metric="outlier_energy",
            value=math.nan if floats.disagreeing else energy,
            unit="share",
            count=floats.finite,
            worst_index=floats.max_index,
        ),
    )


METRIC = Metric(name="outlier_share", unit="share", better="lower", perfect=0.0, finish=_finish)
