"""Where elements differ, as a set of indices with a structure: which axes, which run of them, in which period.

One rule serves borders, tails, stripes, phases, tiles, bands of a mask and single channels. A *coordinate* is a whole number
of each element: its index along an axis, its place in axes that are read as one (memory order), or the sum or difference of its
indices along two axes. A *run* is a cyclic interval of a coordinate, of all of it or of its rest by a period. A *place* is a run,
and further ones that narrow it or are added to it. It is found greedily, each time the run that makes the set of wrong
elements shortest to tell, given where they are (two-part code: J. Rissanen, Automatica 14, 1978).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_RUNS = 8  # of a place; chosen
_LONGEST_PERIOD = 64  # beside powers of two; chosen
_LONGEST = 1 << 20  # values of a coordinate that is looked at; chosen
_PERIODS_UP_TO = 1 << 16  # values of one whose every period is looked at; chosen
_LEAST_GAIN = 8.0  # bits that a run must save to be said; chosen
_NEARLY_TOLD = 0.05  # of the bits: if runs of single axes leave no more, no others are asked; chosen
_FIRST_RATES = (0.5, 0.02)  # of wrong elements within and without, before they are known; chosen
_LEAST_RATE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """A whole number of each element: `axes` read as one, or where `sign` is not 0 the sum or difference of two indices."""

    axes: tuple[int, ...]
    sign: int = 0

    @property
    def words(self) -> str:
        """What it is called behind "index of"."""
        first, last = self.axes[0], self.axes[-1]
        if self.sign:
            return (
                f"axis {first} plus that of axis {last}" if self.sign > 0 else f"axis {first} minus that of axis {last}"
            )
        return f"axis {first}" if first == last else f"axes {first} to {last} read as one"

    def length(self, shape: tuple[int, ...]) -> int:
        """How many values it takes."""
        sizes = [shape[axis] for axis in self.axes]
        return sum(sizes) - 1 if self.sign else math.prod(sizes)

    def least(self, shape: tuple[int, ...]) -> int:
        """Its least value."""
        return 1 - shape[self.axes[1]] if self.sign < 0 else 0

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Its value less the least one, in a shape that broadcasts to the elements'."""
        found = np.zeros((1,) * len(shape), np.int64)
        for axis in self.axes:
            index = np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape))])
            if not self.sign:
                found = found * shape[axis] + index
            elif axis == self.axes[0] or self.sign > 0:
                found = found + index
            else:
                found = found + (shape[axis] - 1 - index)
        return found

    def counts(self, chosen: np.ndarray) -> np.ndarray:
        """How many of the chosen elements have each of its values; int64, (length,)."""
        others = tuple(axis for axis in range(chosen.ndim) if axis not in self.axes)
        table = chosen.sum(others, dtype=np.int64)
        if not self.sign:
            return np.asarray(table.ravel())
        values = self.values(chosen.shape).reshape(table.shape)
        return np.bincount(values.ravel(), table.ravel(), self.length(chosen.shape)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`count` neighbouring values of a coordinate from `start` on (from its end where negative), of its rest by `period`.

    Without a period (0) of all its values. `bits` is what saying it costs.
    """

    coordinate: Coordinate
    start: int
    count: int
    period: int
    bits: float

    def mask(self, shape: tuple[int, ...]) -> np.ndarray:
        """Which elements lie in it, in a shape that broadcasts to the elements'."""
        values = self.coordinate.values(shape)
        return np.asarray((values - self.start) % (self.period or self.coordinate.length(shape)) < self.count)

    def moved(self, start: int, count: int, shape: tuple[int, ...]) -> Run | None:
        """With another start and as many values more or less; None where that is none or all, or goes around."""
        size = self.period or self.coordinate.length(shape)
        first, count = self.start % size + start, self.count + count
        if not 0 < count < size or first < 0 or (not self.period and first + count > size):
            return None
        return _make_run(self.coordinate, first % size, count, self.period, shape)

    def words(self, shape: tuple[int, ...]) -> str:
        """Completes "at"."""
        of, count, start = self.coordinate.words, self.count, self.start
        if self.coordinate.sign and not self.period:
            low = start % self.coordinate.length(shape) + self.coordinate.least(shape)
            span = f"{low}" if count == 1 else f"from {low} to {low + count - 1}"
            return f"elements whose index of {of} is {span}"
        if self.coordinate.sign:
            rests = [str((start + more + self.coordinate.least(shape)) % self.period) for more in range(count)]
            return f"elements whose index of {of} leaves {', '.join(rests)} when divided by {self.period}"
        if self.period:
            many = f"{count} of every {self.period} indices of {of}, from {start} on"
            return f"every second index of {of}, from {start} on" if self.period == 2 else many
        if start < 0 < count + start:
            return (
                f"the first and the last index of {of}"
                if (count, start) == (2, -1)
                else f"the first {count + start} and the last {-start} indices of {of}"
            )
        if start == 0:
            return f"the first index of {of}" if count == 1 else f"the first {count} indices of {of}"
        if start == -count:
            return f"the last index of {of}" if count == 1 else f"the last {count} indices of {of}"
        return f"index {start} of {of}" if count == 1 else f"indices {start} to {start + count - 1} of {of}"


def run_along(axis: int, start: int, count: int, period: int, shape: tuple[int, ...]) -> Run:
    """Neighbouring indices of an axis, or of its rest by a period."""
    return _make_run(Coordinate(axes=(axis,)), start, count, period, shape)


def _make_run(coordinate: Coordinate, start: int, count: int, period: int, shape: tuple[int, ...]) -> Run:
    size = period or coordinate.length(shape)
    told = _run_bits(np.array([start]), np.array([count]), np.array([size]), whole=not period)
    at_end = not period and start and start + count >= size
    return Run(
        coordinate=coordinate,
        start=start - size if at_end else start,
        count=count,
        period=period,
        bits=math.log2(sum(1 for _ in _coordinates_of(shape)) or 1) + float(told[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlace:
    """Runs in order: each behind the first narrows what those before it say ("and"), or is added to it ("or")."""

    runs: tuple[tuple[str, Run], ...]
    shape: tuple[int, ...]

    @property
    def bits(self) -> float:
        """What saying it costs."""
        return sum(run.bits + (how != "") for how, run in self.runs)

    @property
    def words(self) -> str:
        """Completes "at"."""
        told, runs = "", list(self.runs)
        ways = {how for how, _ in runs[1:]}
        if len(ways) == 1:  # then their order is free
            ordered = sorted((run for _, run in runs), key=lambda run: (run.coordinate.axes, run.start))
            runs = [(way, run) for (way, _), run in zip(runs, ordered, strict=True)]
        for how, run in runs:
            more = run.words(self.shape)
            told = more if not how else f"{told}, of these {more}" if how == "and" else f"{told}, and at {more}"
        return told

    @property
    def with_less(self) -> list[IndexPlace]:
        """It and what its first one and first two runs say: what narrows it further may be right by chance."""
        counts = sorted({1, 2, len(self.runs)} & set(range(len(self.runs) + 1)))
        return [IndexPlace(runs=self.runs[:count], shape=self.shape) for count in counts]

    def beside(self, by: int) -> Iterator[IndexPlace]:
        """The places of which one end of one run is so many values further out or in."""
        for place, (how, run) in enumerate(self.runs):
            for start, count in ((-by, by), (by, -by), (0, by), (0, -by)):
                moved = run.moved(start, count, self.shape)
                if moved is not None:
                    yield replace(self, runs=(*self.runs[:place], (how, moved), *self.runs[place + 1 :]))

    def mask(self, shape: tuple[int, ...]) -> np.ndarray:
        """Which elements of an array of this shape lie in it; bools that broadcast to the shape."""
        found = np.zeros((1,) * len(shape), bool)
        for how, run in self.runs:
            found = found & run.mask(shape) if how == "and" else found | run.mask(shape)
        return found


def find_place(wrong: np.ndarray, known: np.ndarray) -> IndexPlace | None:
    """The place that tells best which elements are wrong; None where it tells nothing, or all are.

    Args:
        wrong: Bools of the elements' shape.
        known: Those that are looked at; `wrong` of others is not used.
    """
    wrong = wrong & known
    if not wrong.any() or np.array_equal(wrong, known):
        return None
    coordinates = list(_coordinates_of(wrong.shape))
    plain = [one for one in coordinates if len(one.axes) == 1]
    untold = _mask_bits(wrong, known, np.zeros_like(wrong))
    place, left = _narrow_down(wrong, known, plain)
    if left > _NEARLY_TOLD * untold:
        other, rest = _narrow_down(wrong, known, coordinates)
        place = other if rest + other.bits < left + place.bits else place
    return place if place.runs else None


def _narrow_down(wrong: np.ndarray, known: np.ndarray, coordinates: list[Coordinate]) -> tuple[IndexPlace, float]:
    """The place that runs of these coordinates make, one after the other, and the bits that it leaves untold."""
    shape = wrong.shape
    place = IndexPlace(runs=(), shape=shape)
    inside = np.zeros(shape, bool)
    left = _mask_bits(wrong, known, inside)
    for _ in range(_MOST_RUNS):
        trials = []
        for how, domain in (("and", known & inside), ("or", known & ~inside)):
            run = _best_run(wrong & domain, domain, coordinates) if domain.any() else None
            if run is None:
                continue
            tried = inside & run.mask(shape) if how == "and" else inside | run.mask(shape)
            trials.append((_mask_bits(wrong, known, tried), how if place.runs else "", run, tried))
        best = min(trials, key=lambda one: one[0] + one[2].bits, default=None)
        if best is None or best[0] + best[2].bits > left - _LEAST_GAIN:
            break
        left, how, run, inside = best
        place = IndexPlace(runs=(*place.runs, (how, run)), shape=shape)
    return place, left


def _coordinates_of(shape: tuple[int, ...]) -> Iterator[Coordinate]:
    """All axes, trailing ones read as one, sums and differences of two of one length or of the last two."""
    axes = [axis for axis, length in enumerate(shape) if length > 1]
    made = [Coordinate(axes=(axis,)) for axis in axes]
    made += [Coordinate(axes=tuple(range(axis, len(shape)))) for axis in axes if axis < len(shape) - 1]
    made += [
        Coordinate(axes=(one, other), sign=sign)
        for one, other in itertools.combinations(axes, 2)
        if shape[one] == shape[other] or [one, other] == axes[-2:]
        for sign in (-1, 1)
    ]
    return (one for one in made if one.length(shape) <= _LONGEST)


def _mask_bits(wrong: np.ndarray, known: np.ndarray, inside: np.ndarray) -> float:
    """What telling which elements are wrong costs, where it is known which lie inside."""
    within = known & inside
    some = np.array([(wrong & inside).sum(), (wrong & ~inside).sum()])
    return float(_entropy_bits(some, np.array([within.sum(), (known & ~inside).sum()])).sum())


def _entropy_bits(some: np.ndarray, count: np.ndarray) -> np.ndarray:
    rate = some / np.maximum(count, 1)
    rest = 1 - rate
    return np.asarray(
        -count * (rate * np.log2(np.where(rate > 0, rate, 1)) + rest * np.log2(np.where(rest > 0, rest, 1)))
    )


def _best_run(wrong: np.ndarray, domain: np.ndarray, coordinates: list[Coordinate]) -> Run | None:
    """The run of any coordinate that tells most about which elements of a domain are wrong."""
    best: tuple[float, Run | None] = (0.0, None)
    alternatives = math.log2(len(coordinates) or 1)
    for coordinate in coordinates:
        bad, every = coordinate.counts(wrong), coordinate.counts(domain)
        for periods in _periods_of(bad.size):
            sizes = np.array([period or bad.size for period in periods])
            folded, known = _fold_counts(bad, sizes), _fold_counts(every, sizes)
            starts, counts = _densest_intervals(folded, known, sizes)
            bits = alternatives + _run_bits(starts, counts, sizes, whole=not periods[0])
            gains = _gains_of(folded, known, starts, counts, sizes) - bits
            place = int(gains.argmax())
            if gains[place] > best[0]:
                found = coordinate, int(starts[place]), int(counts[place]), periods[place]
                best = float(gains[place]), _make_run(*found, wrong.shape)
    return best[1]


def _periods_of(length: int) -> list[list[int]]:
    """None (0), every short one, and powers of two; those together that are looked at together."""
    short = range(2, min(length // 2, _LONGEST_PERIOD) + 1) if length <= _PERIODS_UP_TO else range(0)
    long = [1 << power for power in range(1, 13) if _LONGEST_PERIOD < 1 << power <= length // 2]
    return [one for one in ([0], list(short), long) if one]


def _run_bits(starts: np.ndarray, counts: np.ndarray, sizes: np.ndarray, *, whole: bool) -> np.ndarray:
    """A run at an end needs one number, one in the middle or of a period two; a single index one. And the period's own."""
    ends = (starts == 0) | (starts + counts == sizes) if whole else np.zeros(sizes.shape, bool)
    numbers = np.where((counts == 1) | ends, 1, 2) + (0 if whole else 2)
    return np.asarray(1 + numbers * np.log2(sizes))


def _fold_counts(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """By period, sums over all values with one rest; int64, (periods, the longest), zero behind a period's end."""
    table = np.zeros((sizes.size, sizes.max()), np.int64)
    for row, size in zip(table, sizes, strict=True):
        whole = counts.size // size * size
        row[:size] = counts[:whole].reshape(-1, size).sum(0)
        row[: counts.size - whole] += counts[whole:]
    return table


def _gains_of(
    bad: np.ndarray, every: np.ndarray, starts: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The bits that each row's interval saves of telling which elements are wrong; none where these are rarer within."""
    some, seen = (_sums_within(one, starts, counts, sizes) for one in (bad, every))
    all_bad, all_seen = bad.sum(1), every.sum(1)
    saved = (
        _entropy_bits(all_bad, all_seen) - _entropy_bits(some, seen) - _entropy_bits(all_bad - some, all_seen - seen)
    )
    likelier = some * (all_seen - seen) > (all_bad - some) * seen
    return np.where(likelier & (counts < sizes), saved, -np.inf)


def _sums_within(table: np.ndarray, starts: np.ndarray, counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The sum of each row over a cyclic interval of its first `sizes` numbers."""
    sums = np.concatenate([np.zeros((len(table), 1), table.dtype), np.cumsum(table, 1)], 1)
    rows, stops = np.arange(len(table)), starts + counts
    over = np.maximum(stops - sizes, 0)
    return np.asarray(sums[rows, np.minimum(stops, sizes)] - sums[rows, starts] + sums[rows, over])


def _densest_intervals(bad: np.ndarray, every: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and length by row of the cyclic interval in which wrong ones are likeliest: a largest sum (J. Kadane), twice."""
    within, without = (np.full((len(bad), 1), rate) for rate in _FIRST_RATES)
    for _ in range(2):
        worth = bad * np.log2(within / without) + (every - bad) * np.log2((1 - within) / (1 - without))
        starts, counts = _largest_cyclic_sums(worth, sizes)
        some, seen = (_sums_within(one, starts, counts, sizes) for one in (bad, every))
        within = _bounded_rates(some, seen)
        without = np.minimum(_bounded_rates(bad.sum(1) - some, every.sum(1) - seen), within)
    return starts, counts


def _bounded_rates(some: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(some / np.maximum(count, 1), _LEAST_RATE, 1 - _LEAST_RATE)[:, None])


def _largest_cyclic_sums(worth: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and length by row of the cyclic interval of the largest sum: the best within, or all but the worst within."""
    best, starts, stops = _largest_sums(worth)
    worst, low, high = _largest_sums(-worth)
    around = (worth.sum(1) + worst > best) & (high - low < sizes)
    return np.where(around, high % sizes, starts), np.where(around, sizes - (high - low), stops - starts)


def _largest_sums(worth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By row the largest sum of an interval, and its ends."""
    sums = np.concatenate([np.zeros((len(worth), 1)), np.cumsum(worth, 1)], 1)
    least = np.minimum.accumulate(sums, 1)[:, :-1]
    gains = sums[:, 1:] - least
    last = gains.argmax(1)
    rows = np.arange(len(worth))
    starts = (sums[:, :-1] <= least[rows, last][:, None]).argmax(1)
    return gains[rows, last], starts, last + 1
