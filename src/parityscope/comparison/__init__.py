"""(reference, candidate) -> Statistics -> measurements: pure arithmetic about the difference of two tensors.

One blocked pass over the data (`measure_pair`) keeps sufficient statistics, in float64; every metric is computed from
them afterwards (`measure_all`), one metric per file in `metrics/`. Statistics of samples merge (`merge_statistics`).
`measure_replay` does the same for the three tensors of the severed replay: introduced and inherited error.

Rules that every metric keeps: NaN and infinity are counted and never averaged away; zeros in the reference are not
skipped; integers are compared exactly; a known fault of a metric is named on its page with what is done about it.

Compiled loops (`_kernel`) are numba's, kept in its own cache (`compiling`).
"""

from __future__ import annotations

from parityscope.comparison._channels import CHANNEL_FLOOR, Channels, ChannelSummary, summarize_channels
from parityscope.comparison._histogram import QUANTILE_BOUND, Histogram, Sketch
from parityscope.comparison._layout import channel_axis
from parityscope.comparison._merging import merge_statistics
from parityscope.comparison._plain import to_plain
from parityscope.comparison._scores import Scores, can_be_scores, likely_scores
from parityscope.comparison.measure import measure_pair
from parityscope.comparison.metric import Metric, all_metrics, measure_all
from parityscope.comparison.moments import Moments, scale_by_power
from parityscope.comparison.replayed import ReplayStatistics, measure_replay
from parityscope.comparison.statistics import Exact, Floats, Statistics

__all__ = [
    "CHANNEL_FLOOR",
    "QUANTILE_BOUND",
    "ChannelSummary",
    "Channels",
    "Exact",
    "Floats",
    "Histogram",
    "Metric",
    "Moments",
    "ReplayStatistics",
    "Scores",
    "Sketch",
    "Statistics",
    "all_metrics",
    "can_be_scores",
    "channel_axis",
    "likely_scores",
    "measure_all",
    "measure_pair",
    "measure_replay",
    "merge_statistics",
    "scale_by_power",
    "summarize_channels",
    "to_plain",
]
