"""The numbers of a constant, and what a format does to them, in one pass over blocks that fit into the cache.

Each block is taken to float64, in which every element type here is exact. Only elements outside a format's normal
range, usually few, are rounded to it (`round_to`, bit-exact); all others need two comparisons.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.rounding import round_to
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from parityscope.arithmetic.formats import Format

_BLOCK = 1 << 16  # elements: 512 KiB as float64, which stays in the second-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLoss:
    """What a format does to the elements of a constant.

    `beyond` of them round to infinity (NaN in a format without infinities), `vanished` round to zero, `subnormal` keep
    fewer digits than a normal number. `underflow` is the relative L2 change of the whole constant by the last two.
    """

    beyond: int
    vanished: int
    subnormal: int
    underflow: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The elements of a constant in numbers; `lowest` and `highest` are finite (0 when there is no finite element)."""

    nan: int = 0
    infinite: int = 0
    lowest: float | int = 0
    highest: float | int = 0
    losses: Mapping[str, FormatLoss]

    @property
    def worst(self) -> float | int:
        """The finite element of largest magnitude, with its sign."""
        return self.highest if abs(self.highest) >= abs(self.lowest) else self.lowest


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


def float_numbers(arrays: Iterable[np.ndarray], formats: Sequence[Format]) -> Numbers:
    """The numbers of float arrays of any shape and any numpy or ml_dtypes float type, taken together."""
    tallies = [_Tally(each) for each in formats]
    nan = infinite = 0
    lowest, highest, norm = math.inf, -math.inf, 0.0
    for held in _blocks_in_cache(arrays):
        finite = np.isfinite(held)
        block = held
        if not finite.all():
            nan += int(np.isnan(held).sum())
            infinite += int(np.isinf(held).sum())
            block = held[finite]
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


def _blocks_in_cache(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    for array in arrays:
        flat = array.reshape(-1)
        yield from (flat[start : start + _BLOCK].astype(np.float64) for start in range(0, flat.size, _BLOCK))


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
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    if 1e-140 < largest < 1e140:
        return math.sqrt(float(np.einsum("i,i", values, values)))  # not BLAS: its threads cost more than they save here
    return largest * math.sqrt(float(np.square(values / largest).sum()))
