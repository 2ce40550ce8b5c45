"""Cosine of the angle between the two tensors, always with the ratio of their norms.

cosine = <r, c> / (|r| |c|); norm_ratio = |c| / |r|. Two tensors of zeros have 1 and 1; one of zeros has cosine 0, and a
norm ratio of 0 or infinity. NaN where a value is non-finite on one side only.

Known faults: cosine is blind to scale (c = 255 r, a forgotten normalisation, has cosine 1.00000), which is why the norm
ratio is part of it (255). At the good end it saturates: a relative L2 error e gives 1 - cosine = e^2 / 2 about, so that
0.99 allows 14 % and TF32's 3e-4 is 5e-8 from 1. Judge by `rel_l2`; this is here for what others quote.
"""

from __future__ import annotations

import math

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    moments = floats.moments
    reference, candidate = math.sqrt(moments.reference2), math.sqrt(moments.candidate2)
    if moments.error2 == 0:
        cosine = ratio = 1.0
    else:
        size = reference * candidate
        cosine = max(-1.0, min(1.0, moments.product / size)) if size else 0.0
        ratio = candidate / reference if reference else math.inf
    if floats.disagreeing:
        cosine = ratio = math.nan
    return (
        Measurement(metric="cosine", value=cosine, unit="cosine", count=floats.finite),
        Measurement(metric="norm_ratio", value=ratio, unit="ratio", count=floats.finite),
    )


METRIC = Metric(name="cosine", unit="cosine", better="higher", perfect=1.0, finish=_finish)
