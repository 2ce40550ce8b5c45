"""Quantiles of |error|: what half, 90 %, 99 % and 99.9 % of the elements do not exceed.

p50_abs is the smallest error that at least half of all elements do not exceed, and so on: each is a value that occurs
(the "inverted CDF" of Hyndman and Fan 1996, type 1), read from a logarithmic sketch to within 0.78 % (the bound, its
derivation and the range it holds in are in `_histogram`). Values that are non-finite on one side only count as
infinite errors, agreeing ones as zero: with 1 % of NaN p99 may be finite, p99.9 is infinite.

Known faults: quantiles are blind to what is rarer than they are; the largest error stands beside them. numpy.quantile
costs 18 ns an element (numerics.md), more than all other metrics together, and this nothing.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement

_PERMILLE = {"p50_abs": 500, "p90_abs": 900, "p99_abs": 990, "p999_abs": 999}


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    floats = statistics.floats
    if floats is None:
        return None
    return tuple(
        Measurement(
            metric=name,
            value=floats.sketch.quantile(permille, extra_zeros=floats.agreeing, infinite=floats.disagreeing),
            unit="absolute",
            count=statistics.count,
        )
        for name, permille in _PERMILLE.items()
    )


METRIC = Metric(name="p50_abs", unit="absolute", better="lower", perfect=0.0, finish=_finish)
