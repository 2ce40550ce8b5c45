"""Error by channel, so that one dead channel of 256 shows.

The relative L2 error of a channel is |c - r| / |r| over its elements. A channel whose reference is (nearly) zero would
make that ratio mean nothing: after a ReLU whole channels are exactly zero, and one rounding error there would be an
infinite one. Its norm is therefore taken to be at least 2^-11 of the root mean square of the channels' norms. Below
that a whole channel is smaller than the FP16 and TF32 rounding unit (u = 2^-11, numerics.md) of a usual channel's
values. Nothing is skipped: 5.0 where the reference is zero is as visible as anywhere.
"""

from __future__ import annotations

import math

import numpy as np

from parityscope.light_dataclasses import dataclass, replace

CHANNEL_FLOOR = 2.0**-11  # derived in the docstring


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Channels:
    """Sums by channel, over all pairs of finite values.

    `error2`, `reference2`: float64, (k,), sums of squares; `disagreeing`: int64, (k,), elements that are non-finite
    on one side only or differently; all of them for the `total` channels.
    """

    axis: int
    total: int
    error2: np.ndarray
    reference2: np.ndarray
    disagreeing: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelSummary:
    """`relative`: float64, (k,), relative L2 error of each held channel; `median` over all channels."""

    relative: np.ndarray
    median: float
    worst: int
    worst_relative: float

    @property
    def ratio(self) -> float:
        """The worst channel's error over the median channel's: 1 for equal ones, infinite where most are perfect."""
        if self.worst_relative == self.median:
            return 1.0
        return self.worst_relative / self.median if self.median else float("inf")


def summarize_channels(channels: Channels) -> ChannelSummary | None:
    """The worst and the median channel (the lowest index wins a tie); None where there is no channel."""
    if channels.total == 0:
        return None
    floor = CHANNEL_FLOOR**2 * float(channels.reference2.mean())
    scale2 = np.maximum(channels.reference2, floor)
    relative = np.zeros(channels.error2.size)
    wrong = channels.error2 > 0
    with np.errstate(divide="ignore", over="ignore"):
        relative[wrong] = np.sqrt(channels.error2[wrong] / scale2[wrong])
    relative[channels.disagreeing > 0] = np.inf
    at = int(np.argmax(relative))
    median = _plain_median(relative)
    return ChannelSummary(relative=relative, median=median, worst=at, worst_relative=float(relative[at]))


def merge_channels(first: Channels | None, second: Channels | None, *, factors: tuple[float, float]) -> Channels | None:
    """Sums over both; None where the two do not have the same channels (a dynamic axis).

    Args:
        first: sums of one set of elements.
        second: sums of another one.
        factors: what the squares of each are multiplied by to bring them to one scale.
    """
    if first is None or second is None or first.total != second.total or first.axis != second.axis:
        return None
    return replace(
        first,
        error2=first.error2 * factors[0] + second.error2 * factors[1],
        reference2=first.reference2 * factors[0] + second.reference2 * factors[1],
        disagreeing=first.disagreeing + second.disagreeing,
    )


def _plain_median(values: np.ndarray) -> float:
    """`numpy.median` of a row of numbers, without the masked arrays that it imports to look for NaN."""
    ordered = np.sort(values)
    if math.isnan(ordered[-1]):
        return math.nan
    middle = ordered.size // 2
    return float(ordered[middle] if ordered.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
