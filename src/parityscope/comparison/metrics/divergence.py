"""Kullback-Leibler divergence of the candidate's distribution from the reference's: mean and worst row.

KL = sum p ln(p / q) in nats over the last axis, p from the reference and q from the candidate: as they are where the
reference's rows are probabilities, else through a softmax in float64. Only for outputs that the caller says are scores.
Rows without a distribution (NaN, +Inf) are infinitely far apart unless both sides are identical.

Known faults: msaccucmp scales both sides to [0, 1] first, which makes its KLD blind to any factor and offset (x255 and
+1 both give 0.00000) and treats any feature map as a distribution; here nothing is rescaled and only scores are taken.
A softmax is itself blind to an offset common to a row, rightly: it changes no decision. `rel_l2` sees it.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    scores = statistics.scores
    if scores is None:
        return None
    mean = scores.divergence / scores.rows if scores.rows else 0.0
    return (
        Measurement(metric="kl_mean", value=mean, unit="nats", count=scores.rows),
        Measurement(
            metric="kl_max",
            value=scores.divergence_max,
            unit="nats",
            count=scores.rows,
            worst_index=scores.worst_row,
        ),
    )


METRIC = Metric(name="kl_mean", unit="nats", better="lower", perfect=0.0, finish=_finish)
