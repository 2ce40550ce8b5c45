"""Do both sides choose the same classes? Agreement of the best one and of the best five.

top1_agreement = share of rows (last axis) whose largest score is at the same index; top5_agreement = share of the
reference's five best that are among the candidate's five best, averaged over rows. Of equal scores the lowest index
counts as larger, on both sides. Only for outputs that the caller says are scores.

Known faults: blind to everything but order, and coarse for few rows: one row of a thousand classes says yes or no.
Where two classes are within the noise of each other a flip means nothing: look at `kl_mean` beside it.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    scores = statistics.scores
    if scores is None:
        return None
    rows = scores.rows
    return (
        Measurement(metric="top1_agreement", value=scores.top1 / rows if rows else 1.0, unit="share", count=rows),
        Measurement(metric="top5_agreement", value=scores.top5 / rows if rows else 1.0, unit="share", count=rows),
    )


METRIC = Metric(name="top1_agreement", unit="share", better="higher", perfect=1.0, finish=_finish)
