"""The numbers of a constant, in one pass over blocks that fit into the cache.

Each block is taken to float64, in which every element type here is exact. Only elements outside a format's normal
range, usually few, are rounded to it (`round_to`, bit-exact); all others need two comparisons.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import round_to
from parityscope.linting.records import FormatLoss, Numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.arithmetic import Format

__all__ = ["float_numbers", "integer_numbers", "value_in_format"]

_BLOCK = 1 << 16  # elements: 512 KiB as float64, which stays in the second-level cache


class _Tally:
    """Sums over blocks for one format."""

    def __init__(self, number_format: Format) -> None:
        self.format = number_format
        self.beyond = self.vanished = self.subnormal = 0
        self.lost = 0.0

    def add(self, magnitudes: np.ndarray, highest: float) -> None:
        """Counts a block: finite magnitudes, float64, (n,)."""
        if highest > self.format.largest:
            big = magnitudes[magnitudes > self.format.largest]
            self.beyond += int(np.count_nonzero(~(round_to(big, self.format) <= self.format.largest)))
        small = magnitudes[magnitudes < self.format.smallest_normal]
        small = small[small > 0]
        if small.size:
            rounded = round_to(small, self.format)
            vanished = int(np.count_nonzero(rounded == 0))
            self.vanished += vanished
            self.subnormal += small.size - vanished
            # Scaled before squaring: the square of a number below 1e-154 is zero in float64.
            self.lost = math.hypot(self.lost, _l2_norm(small - rounded))

    def loss(self, norm: float) -> FormatLoss:
        """The result, for a constant of this L2 norm."""
        share = self.lost / norm if norm > 0 else 0.0
        return FormatLoss(beyond=self.beyond, vanished=self.vanished, subnormal=self.subnormal, underflow=share)


def float_numbers(array: np.ndarray, formats: Sequence[Format]) -> Numbers:
    """The numbers of a float array of any shape and any numpy or ml_dtypes float type."""
    flat = array.reshape(-1)
    tallies = [_Tally(each) for each in formats]
    nan = infinite = 0
    lowest, highest, norm = math.inf, -math.inf, 0.0
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK].astype(np.float64)
        if not np.isfinite(block).all():
            nan += int(np.isnan(block).sum())
            infinite += int(np.isinf(block).sum())
            block = block[np.isfinite(block)]
            if not block.size:
                continue
        lowest, highest = min(lowest, float(block.min())), max(highest, float(block.max()))
        magnitudes = np.abs(block)
        norm = math.hypot(norm, _l2_norm(magnitudes))
        for tally in tallies:
            tally.add(magnitudes, max(-lowest, highest))
    if highest < lowest:
        lowest = highest = 0.0
    losses = {tally.format.name: tally.loss(norm) for tally in tallies}
    return Numbers(nan=nan, infinite=infinite, lowest=lowest, highest=highest, losses=losses)


def integer_numbers(array: np.ndarray) -> Numbers:
    """The numbers of an integer or boolean array of any shape."""
    nothing: Mapping[str, FormatLoss] = {}
    if not array.size:
        return Numbers(losses=nothing)
    return Numbers(lowest=int(array.min()), highest=int(array.max()), losses=nothing)


def value_in_format(value: float, number_format: Format) -> float:
    """What the format makes of one number, overflow going to infinity (NaN where it has none)."""
    return float(round_to(np.array([value], np.float64), number_format)[0])


def _l2_norm(values: np.ndarray) -> float:
    largest = float(values.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    if 1e-140 < largest < 1e140:
        return math.sqrt(float(np.einsum("i,i", values, values)))  # not BLAS: its threads cost more than they save here
    return largest * math.sqrt(float(np.square(values / largest).sum()))
