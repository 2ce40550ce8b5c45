"""Signal-to-noise ratio in decibels: relative L2 error on a logarithmic scale.

snr_db = 10 log10(sum r^2 / sum (c - r)^2) = -20 log10(rel_l2). Infinite for equal tensors, minus infinity where the
reference is zero and the candidate is not, or where a value is non-finite on one side only. One bit is 6.02 dB; one
matrix product gives about 70 dB in TF32 and FP16, 52 in BF16 and 34 in INT8 (numerics.md, "Signature ladder").

Known fault: like `rel_l2` it is one number for the whole tensor; `worst_channel` looks closer.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> Measurement | None:
    floats = statistics.floats
    if floats is None:
        return None
    moments = floats.moments
    if floats.disagreeing:
        value = -math.inf
    elif moments.error2 == 0:
        value = math.inf
    elif moments.reference2 == 0:
        value = -math.inf
    else:
        value = 10 * (math.log10(moments.reference2) - math.log10(moments.error2))
    return Measurement(metric="snr_db", value=value, unit="dB", count=floats.finite)


METRIC = Metric(name="snr_db", unit="dB", better="higher", perfect=math.inf, finish=_finish)
