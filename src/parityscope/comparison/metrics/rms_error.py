"""Root mean square error, and the largest error beside the reference's root mean square.

rms_error = sqrt(mean (c - r)^2); max_rel_rms = max |c - r| / sqrt(mean r^2), over the pairs in which both are finite;
infinite where a value is non-finite on one side only. r = 0 gives 0 if c = 0, else infinity.

Known faults: an RMS error has the tensor's unit (msaccucmp's RMSE < 1.0 passes a softmax that is pure noise); the usual
maximum of |c - r| / |r| is decided by references near zero and reaches 1e6 for nothing, or skips them (msaccucmp: all
ReLU zeros turned into 5.0 scored 0.0000). Against the tensor's own scale a zero counts like any other value.
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
    error = scale_by_power(math.sqrt(moments.error2 / count), moments.exponent)
    scale = scale_by_power(math.sqrt(moments.reference2 / count), moments.exponent)
    relative = _error_over_scale(floats.max_abs, scale)
    bad = floats.disagreeing > 0
    return (
        Measurement(metric="rms_error", value=math.inf if bad else error, unit="absolute", count=floats.finite),
        Measurement(
            metric="max_rel_rms",
            value=math.inf if bad else relative,
            unit="relative",
            count=floats.finite,
            worst_index=floats.first_disagreeing if bad else floats.max_index,
        ),
    )


def _error_over_scale(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale else math.inf


METRIC = Metric(name="rms_error", unit="absolute", better="lower", perfect=0.0, finish=_finish)
