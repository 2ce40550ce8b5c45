"""(reference, candidate) -> Statistics -> measurements: pure arithmetic about the difference of two tensors.

One blocked pass over the data (`measure_pair`) keeps sufficient statistics, in float64; every metric is computed from
them afterwards (`measurements`), one metric per file in `metrics/`. Statistics of samples merge (`merge_statistics`).
`measure_replay` does the same for the three tensors of the severed replay: introduced and inherited error.

Rules that every metric keeps: NaN and infinity are counted and never averaged away; zeros in the reference are not
skipped; integers are compared exactly; a known fault of a metric is named on its page with what is done about it.

Compiled loops (`_kernel`) are numba's, kept in its own cache (`compiling`).
"""

from __future__ import annotations

import importlib

from parityscope.comparison._channels import CHANNEL_FLOOR, Channels, ChannelSummary, summarize_channels
from parityscope.comparison._histogram import QUANTILE_BOUND, Histogram, Sketch
from parityscope.comparison._layout import channel_axis
from parityscope.comparison._merging import merge_statistics
from parityscope.comparison._metric import Metric, measurements
from parityscope.comparison._plain import from_plain, to_plain
from parityscope.comparison._scores import Scores, can_be_scores, likely_scores
from parityscope.comparison.measure import measure_pair
from parityscope.comparison.replayed import ReplayStatistics, measure_replay
from parityscope.comparison.statistics import Exact, Floats, Moments, Statistics, scaled

# The folder has the function's name: imported later, it would take the function's place here.
importlib.import_module("parityscope.comparison.metrics")
from parityscope.comparison._metric import metrics  # noqa: E402 - behind the import that would hide it

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
    "can_be_scores",
    "channel_axis",
    "from_plain",
    "likely_scores",
    "measure_pair",
    "measure_replay",
    "measurements",
    "merge_statistics",
    "metrics",
    "scaled",
    "summarize_channels",
    "to_plain",
]
