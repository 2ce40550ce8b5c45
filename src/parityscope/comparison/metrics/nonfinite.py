"""Elements that are NaN or infinite on one side only, or differently on both.

nonfinite counts them; the worst index is the first. Values that agree (NaN with NaN of any payload, an infinity with
the same infinity) are not counted here: networks use them on purpose, as masks do.

Known fault that this answers: ai-edge-quantizer replaces NaN by 1e-9, msprobe by 0 where both sides have one, and msit
drops such rows, so that the worst failure cannot be seen.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> Measurement | None:
    floats = statistics.floats
    if floats is None:
        return None
    return Measurement(
        metric="nonfinite",
        value=floats.disagreeing,
        unit="elements",
        count=statistics.count,
        worst_index=floats.first_disagreeing,
    )


METRIC = Metric(name="nonfinite", unit="elements", better="lower", perfect=0.0, finish=_finish)
