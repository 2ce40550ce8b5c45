"""The worst channel's relative L2 error, and how it compares with the median channel's.

worst_channel = max over channels of |c - r| / |r| (see `_channels` for channels that are zero in the reference);
worst_channel_ratio = that over the median channel's. The worst index is the channel. A value that is non-finite on one
side only makes its channel infinite.

Known fault that this answers: one dead channel of 256 leaves a whole-tensor relative L2 of 6 %, and one channel scaled
by 1.002 passes gates on cosine, histogram overlap and L-infinity (numerics.md, "Why whole-tensor gates are not
enough"). A ratio far above 1 says: per-channel scale, one weight, one filter.
"""

from __future__ import annotations

from parityscope.comparison import Metric, Statistics, summarize_channels
from parityscope.records import Measurement


def _finish(statistics: Statistics) -> tuple[Measurement, ...] | None:
    channels = statistics.channels
    summary = None if channels is None else summarize_channels(channels)
    if channels is None or summary is None:
        return None
    return (
        Measurement(
            metric="worst_channel",
            value=summary.worst_relative,
            unit="relative",
            count=channels.total,
            worst_index=(summary.worst,),
        ),
        Measurement(
            metric="worst_channel_ratio",
            value=summary.ratio,
            unit="ratio",
            count=channels.total,
            worst_index=(summary.worst,),
        ),
    )


METRIC = Metric(name="worst_channel", unit="relative", better="lower", perfect=0.0, finish=_finish)
