"""Introduced and inherited error of one tensor, by the severed replay.

r is the reference's tensor, c the candidate's, and f = f(c_in) what the reference's arithmetic gives on the candidate's
own inputs. Then, element by element and exactly,

    c - r  =  (c - f)  +  (f - r)
              introduced  inherited

All norms are L2 over the elements where all three are finite, in float64, and relative to |r|; over samples they are
sqrt(sum |.|^2 / sum |r|^2). r = 0 gives 0 for no error and infinity for any. Where c and f (f and r) disagree in a
non-finite value, introduced (inherited) is infinite, with the value over finite elements beside it: a NaN is never
averaged away. The cosine between the two parts tells whether they add up (1), are unrelated (0) or cancel (-1).

Integers, booleans and strings have no norm: their errors are shares of differing elements.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison._bins import NOWHERE
from parityscope.comparison._channels import Channels, merge_channels
from parityscope.comparison._exact import compare_exact, compare_text
from parityscope.comparison._layout import Layout, blocks_of_rows, exponent_of, flat_row, layout_of, working_dtype
from parityscope.comparison.measure import kind_of_pair, real_and_imaginary, work_in_stretches
from parityscope.comparison.moments import scale_by_power
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from parityscope.comparison.statistics import Exact


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Three flat tensors r, c and f, (n,), and what the kernel must know of them (as `_stretch.Rows`)."""

    rows: tuple[np.ndarray, ...]
    working: np.dtype[Any]
    exponent: int
    layout: Layout
    shape: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayStatistics:
    """Sums over elements and samples; sums of squares are in units of 4^exponent (0 but for extreme float64).

    `count` is the number of elements, `left_out` those of them that are non-finite in r, c or f.
    `introduced_nonfinite` are non-finite in c where f is finite, `introduced_conflicting` differ in another way that
    involves a non-finite value; the inherited ones are the same of f against r;
    `total_nonfinite` counts c against r, of both kinds. `introduced_max` is the largest |c - f|, infinite at an element that
    disagrees, at `worst_index`; `total_max` and `total_index` are the same of c and r. For integers and strings the sums are
    counts of differing elements: introduced2 of c against f, inherited2 of f against r, total2 of c against r, and
    reference2 is `count`. `channels` holds sums of (c - f)^2 and r^2.
    """

    count: int
    introduced2: float
    inherited2: float
    reference2: float
    total2: float
    introduced_max: float
    worst_index: tuple[int, ...] | None
    total_max: float
    total_index: tuple[int, ...] | None
    product: float = 0.0
    exponent: int = 0
    introduced_nonfinite: int = 0
    introduced_conflicting: int = 0
    inherited_nonfinite: int = 0
    inherited_conflicting: int = 0
    left_out: int = 0
    total_nonfinite: int = 0
    channels: Channels | None = None
    exact: bool = False

    @property
    def introduced(self) -> float:
        """|c - f| / |r|; infinite where c and f disagree in a non-finite value."""
        return math.inf if self.introduced_nonfinite or self.introduced_conflicting else self.introduced_finite

    @property
    def introduced_finite(self) -> float:
        """|c - f| / |r| over finite elements."""
        return self._relative(self.introduced2)

    @property
    def inherited(self) -> float:
        """|f - r| / |r|; infinite where f and r disagree in a non-finite value."""
        return math.inf if self.inherited_nonfinite or self.inherited_conflicting else self.inherited_finite

    @property
    def inherited_finite(self) -> float:
        """|f - r| / |r| over finite elements."""
        return self._relative(self.inherited2)

    @property
    def total(self) -> float:
        """|c - r| / |r|; infinite where c and r disagree in a non-finite value."""
        return math.inf if self.total_nonfinite else self.total_finite

    @property
    def total_finite(self) -> float:
        """|c - r| / |r| over finite elements."""
        return self._relative(self.total2)

    @property
    def angle(self) -> float:
        """The cosine between introduced and inherited error; 0 where one of them is nothing."""
        size = math.sqrt(self.introduced2) * math.sqrt(self.inherited2)
        return max(-1.0, min(1.0, self.product / size)) if size else 0.0

    def gain(self, incoming: float) -> float:
        """How much the region amplifies: inherited relative error over that of its inputs, `incoming` = |dx| / |x|.

        NaN where nothing comes in: there is nothing to amplify.
        """
        return self.inherited / incoming if incoming > 0 and math.isfinite(incoming) else math.nan

    def merge(self, other: ReplayStatistics) -> ReplayStatistics:
        """Statistics over the elements of both; of equal worst elements the one of `self` is named."""
        return _merge_replays(self, other)

    def _relative(self, square: float) -> float:
        if self.exact:
            return square / self.reference2 if self.reference2 else 0.0
        if square == 0:
            return 0.0
        return math.sqrt(square / self.reference2) if self.reference2 else math.inf


def measure_replay(
    reference: np.ndarray,
    candidate: np.ndarray,
    replayed: np.ndarray,
    *,
    channel_axis: int | None,
    threads: int = 1,
) -> ReplayStatistics:
    """Splits a tensor's error into what its region introduced and what it inherited, in one pass.

    Args:
        reference: r, any shape and any type that `measure_pair` takes.
        candidate: c, the same shape and kind.
        replayed: f(c_in), the same shape and kind.
        channel_axis: the axis that channels lie on, None for none; not used for other than real floats.
        threads: how many may work on a large tensor at once.

    Raises:
        ValueError: shapes or kinds differ, a type cannot be compared, or the tensor has no such axis.
    """
    kind = kind_of_pair(reference, candidate, replayed)
    layout = layout_of(reference.shape, channel_axis if kind == "float" else None)
    rows = flat_row(reference), flat_row(candidate), flat_row(replayed)
    shape = reference.shape
    if kind in ("exact", "text"):
        return _count_differences(rows, shape, text=kind == "text")
    parts = 2 if kind == "complex" else 1
    if parts == 2:
        rows = real_and_imaginary(rows[0]), real_and_imaginary(rows[1]), real_and_imaginary(rows[2])
    working = working_dtype(*(row.dtype for row in rows))
    exponent = exponent_of(*rows) if working == np.float64 else 0
    threesome = _Rows(rows=rows, working=working, exponent=exponent, layout=layout, shape=shape, parts=parts)
    work = functools.partial(_measure_stretch, threesome)
    return functools.reduce(_merge_replays, work_in_stretches(work, rows[0].size, threads))


def _merge_replays(first: ReplayStatistics, second: ReplayStatistics) -> ReplayStatistics:
    held = [replay.exponent for replay in (first, second) if _holds_values(replay)]
    unit = max(held, default=0)
    one, two = (
        scale_by_power(1.0, 2 * (replay.exponent - unit)) if _holds_values(replay) else 1.0
        for replay in (first, second)
    )
    larger = second if first.worst_index is None or second.introduced_max > first.introduced_max else first
    whole = second if first.total_index is None or second.total_max > first.total_max else first
    return ReplayStatistics(
        count=first.count + second.count,
        introduced2=first.introduced2 * one + second.introduced2 * two,
        inherited2=first.inherited2 * one + second.inherited2 * two,
        product=first.product * one + second.product * two,
        reference2=first.reference2 * one + second.reference2 * two,
        total2=first.total2 * one + second.total2 * two,
        exponent=unit,
        introduced_nonfinite=first.introduced_nonfinite + second.introduced_nonfinite,
        introduced_conflicting=first.introduced_conflicting + second.introduced_conflicting,
        inherited_nonfinite=first.inherited_nonfinite + second.inherited_nonfinite,
        inherited_conflicting=first.inherited_conflicting + second.inherited_conflicting,
        left_out=first.left_out + second.left_out,
        total_nonfinite=first.total_nonfinite + second.total_nonfinite,
        introduced_max=larger.introduced_max,
        worst_index=larger.worst_index,
        total_max=whole.total_max,
        total_index=whole.total_index,
        channels=merge_channels(first.channels, second.channels, factors=(one, two)),
        exact=first.exact and second.exact,
    )


def _holds_values(replay: ReplayStatistics) -> bool:
    return replay.introduced2 > 0 or replay.inherited2 > 0 or replay.reference2 > 0


def _measure_stretch(rows: _Rows, start: int, stop: int) -> ReplayStatistics:
    from parityscope.comparison.blocks import replay_block

    moments = np.zeros(5)
    counts = np.zeros(7, np.int64)
    extremes = np.array([0, NOWHERE, NOWHERE] * 2, np.int64)
    layout, exponent = rows.layout, rows.exponent
    squares = np.zeros((2, layout.channels))
    disagreeing = np.zeros(layout.channels, np.int64)
    for at, data in blocks_of_rows(rows.rows, rows.working, exponent, start, stop):
        replay_block(data, (at, layout.inner), (moments, counts, extremes, squares, disagreeing))
    introduced2, inherited2, product, reference2, total2 = (float(moment) for moment in moments)
    worst, whole = (_worst_difference(rows, *found) for found in (extremes[:3], extremes[3:]))
    return ReplayStatistics(
        count=stop - start,
        introduced2=introduced2,
        inherited2=inherited2,
        product=product,
        reference2=reference2,
        total2=total2,
        exponent=exponent,
        introduced_nonfinite=int(counts[1]),
        introduced_conflicting=int(counts[2]),
        inherited_nonfinite=int(counts[3]),
        inherited_conflicting=int(counts[4]),
        left_out=int(counts[5]),
        total_nonfinite=int(counts[6]),
        introduced_max=worst[0],
        worst_index=worst[1],
        total_max=whole[0],
        total_index=whole[1],
        channels=None
        if not layout.channels
        else Channels(
            axis=layout.axis,
            total=layout.channels,
            error2=squares[0],
            reference2=squares[1],
            disagreeing=disagreeing,
        ),
    )


def _worst_difference(
    rows: _Rows, bits: np.int64, largest: np.int64, disagreeing: np.int64
) -> tuple[float, tuple[int, ...] | None]:
    """The largest difference of two of the tensors, and where it is; infinite where they disagree in a non-finite value."""
    from parityscope.comparison._stretch import index_in

    if disagreeing < NOWHERE:
        return math.inf, index_in(rows.shape, int(disagreeing), rows.parts)
    return scale_by_power(float(bits.view(np.float64)), rows.exponent), index_in(rows.shape, int(largest), rows.parts)


def _count_differences(rows: tuple[np.ndarray, ...], shape: tuple[int, ...], *, text: bool) -> ReplayStatistics:
    compare = compare_text if text else compare_exact
    introduced: Exact = compare(rows[2], rows[1], shape)
    inherited: Exact = compare(rows[0], rows[2], shape)
    total: Exact = compare(rows[0], rows[1], shape)
    return ReplayStatistics(
        count=rows[0].size,
        introduced2=float(introduced.mismatches),
        inherited2=float(inherited.mismatches),
        reference2=float(rows[0].size),
        total2=float(total.mismatches),
        introduced_max=float(introduced.max_difference or 0),
        worst_index=introduced.max_index if introduced.max_index is not None else introduced.first_mismatch,
        total_max=float(total.max_difference or 0),
        total_index=total.max_index if total.max_index is not None else total.first_mismatch,
        exact=True,
    )
