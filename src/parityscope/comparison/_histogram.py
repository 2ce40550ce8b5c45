"""Sparse histograms that merge exactly, and the sketch of |error| that gives its quantiles.

The sketch counts errors in logarithmic bins: 64 to an octave, cut from the bits of the float64 error (its exponent
and its 6 leading mantissa bits). A bin [a, b) has b - a = 2^octave / 64 <= a / 64, so that its middle is within
1/128 = 0.78 % of every value in it: this is the bound of every quantile. Counts are integers, so that merging is
exact and in any order. The idea is that of DDSketch (Masson, Rim, Lee, PVLDB 12, 2019, https://arxiv.org/abs/1908.10693)
with linear steps inside an octave instead of equal ratios, which needs no logarithm.

Covered: 2^-160 to 2^160 times the unit of the tensor (2^`Moments.exponent`; 1 for everything but extreme float64).
Every difference of two float32 values lies inside. Smaller errors are counted as "below" and taken to be as large as
the range's lower end; in float64 tensors with values beyond 2^100, errors below 2^-1074 of those may count as zero.
"""

from __future__ import annotations

import math

import numpy as np

from parityscope.light_dataclasses import dataclass

BINS_PER_OCTAVE = 64
QUANTILE_BOUND = 1 / (2 * BINS_PER_OCTAVE)  # relative; derived in the docstring


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Counts of the bins that are not empty: `bins` int64, ascending, (k,); `counts` int64, positive, (k,)."""

    bins: np.ndarray
    counts: np.ndarray

    @property
    def total(self) -> int:
        """Elements counted."""
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sketch:
    """The distribution of |error|: exact zeros, errors below the range, and bins 64 * octave + step.

    `floor` is the lower end of the range, an upper bound of what was counted as below.
    """

    zeros: int
    below: int
    floor: float
    bins: Histogram

    def quantile(self, permille: int, *, extra_zeros: int = 0, infinite: int = 0) -> float:
        """The smallest error that at least `permille` thousandths of all errors do not exceed.

        Args:
            permille: 1 to 1000.
            extra_zeros: elements beside the sketch whose error is zero (non-finite values that agree).
            infinite: elements beside the sketch whose error has no bound (non-finite values that disagree).

        Returns:
            The middle of the bin that the quantile lies in; 0 for no elements at all.
        """
        zeros = self.zeros + extra_zeros
        finite = zeros + self.below + self.bins.total
        rank = -(-permille * (finite + infinite) // 1000)
        if rank > finite:
            return math.inf
        if rank <= zeros:
            return 0.0
        if rank <= zeros + self.below:
            return self.floor
        at = int(np.searchsorted(np.cumsum(self.bins.counts), rank - zeros - self.below))
        return _middle_of_bin(int(self.bins.bins[at]))

    def above(self, threshold: float) -> int:
        """How many errors lie in bins wholly above `threshold` (> 0): never more than exceed it."""
        if not 0 < threshold < math.inf:
            return 0 if threshold > 0 else self.below + self.bins.total
        fraction, exponent = math.frexp(threshold)
        last = (exponent - 1) * BINS_PER_OCTAVE + int((2 * fraction - 1) * BINS_PER_OCTAVE)
        return int(self.bins.counts[self.bins.bins > last].sum())

    def octaves(self) -> Histogram:
        """Errors per power of two: bin e counts 2^e <= |error| < 2^(e+1)."""
        return collect_bins(self.bins.bins // BINS_PER_OCTAVE, self.bins.counts)


def merge_histograms(first: Histogram, second: Histogram) -> Histogram:
    """The histogram of both sets of elements."""
    return collect_bins(np.concatenate([first.bins, second.bins]), np.concatenate([first.counts, second.counts]))


def merge_sketches(first: Sketch, second: Sketch) -> Sketch:
    """The sketch of both sets of errors."""
    return Sketch(
        zeros=first.zeros + second.zeros,
        below=first.below + second.below,
        floor=max(first.floor, second.floor),
        bins=merge_histograms(first.bins, second.bins),
    )


def collect_bins(bins: np.ndarray, counts: np.ndarray) -> Histogram:
    """A histogram from bins in any order, some of which may be named twice; int64, (k,) each."""
    unique, where = np.unique(bins, return_inverse=True)
    totals = np.zeros(unique.size, np.int64)
    np.add.at(totals, where, counts)
    return Histogram(bins=unique.astype(np.int64), counts=totals)


def _middle_of_bin(number: int) -> float:
    octave, step = divmod(number, BINS_PER_OCTAVE)
    return math.ldexp(1 + (step + 0.5) / BINS_PER_OCTAVE, octave)
