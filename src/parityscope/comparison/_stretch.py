"""Runs the metric kernel over a stretch of two flat float tensors and reads its accumulators.

The kernel's histograms (655 KB for a sketch with its lanes) are kept between calls and cleared where they were used:
fresh ones for each of a model's tensors would cost more than most of these tensors do.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison._bins import (
    BINS_PER_OCTAVE,
    LANES,
    NOWHERE,
    OCTAVES,
    SKETCH_WIDTH,
    VALUE_BINS,
    VALUE_OFFSET,
)
from parityscope.comparison._channels import Channels
from parityscope.comparison._histogram import Histogram, Sketch
from parityscope.comparison._layout import Layout, blocks_of_rows
from parityscope.comparison._ulp import magnitude_mask, ulp_keys, ulp_unit
from parityscope.comparison.blocks import measure_block
from parityscope.comparison.moments import SUMS, read_moments, scale_by_power
from parityscope.comparison.statistics import Floats

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Rows", "index_in", "measure_stretch"]

_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_BIAS = 1023


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Two flat tensors, (n,), and what the kernel must know of them.

    `shape` and `parts` give an element's index back: complex tensors have 2 parts to an element, others 1.
    """

    reference: np.ndarray
    candidate: np.ndarray
    working: np.dtype[Any]
    exponent: int
    layout: Layout
    shape: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tables:
    """`sketch`: int64, (LANES, SKETCH_WIDTH); `values`: int64, (2, LANES, VALUE_BINS). All zero between uses."""

    sketch: np.ndarray
    values: np.ndarray


_IDLE: list[_Tables] = []  # list.pop and list.append are atomic, so that threads may share them


def measure_stretch(rows: Rows, start: int, stop: int) -> tuple[Floats, Channels | None]:
    """Statistics of the elements from flat index `start` to `stop`."""
    channels = rows.layout.channels
    moments = np.zeros(2 + SUMS)
    counts = np.zeros(8, np.int64)
    counts[6] = NOWHERE
    range_of_nothing = _MAGNITUDE, -_MAGNITUDE
    extremes = np.array([*range_of_nothing, SKETCH_WIDTH, 0, 0, NOWHERE, *range_of_nothing, 0, NOWHERE], np.int64)
    squares = np.zeros((2, channels))
    disagreeing = np.zeros(channels, np.int64)
    dtype = rows.candidate.dtype
    mask = magnitude_mask(rows.working)
    with _borrow_tables() as tables:
        for at, (reference, candidate) in blocks_of_rows(
            (rows.reference, rows.candidate), rows.working, rows.exponent, start, stop
        ):
            part = slice(at, at + reference.size)
            keys = (ulp_keys(side[part], dtype, rows.working) for side in (rows.reference, rows.candidate))
            added = moments, counts, extremes, tables.sketch, tables.values, squares, disagreeing
            measure_block((reference, candidate, *keys), mask, (at, rows.layout.inner), added)
        sketch = _read_sketch(tables.sketch, counts, extremes, rows.exponent)
        values = [_read_values(table, rows.exponent) for table in tables.values]
    unit = ulp_unit(dtype, rows.working)
    floats = Floats(
        finite=int(counts[4]),
        reference_only=int(counts[0]),
        candidate_only=int(counts[1]),
        conflicting=int(counts[2]),
        agreeing=int(counts[3]),
        first_disagreeing=index_in(rows.shape, int(counts[6]), rows.parts),
        moments=read_moments(moments[2:], rows.exponent),
        ulp=float(moments[0]) / unit,
        ulp_max=float(moments[1]) / unit,
        max_abs=scale_by_power(float(extremes[4:5].view(np.float64)[0]), rows.exponent),
        max_index=index_in(rows.shape, int(extremes[5]), rows.parts),
        max_rel=float(extremes[8:9].view(np.float64)[0]),
        max_rel_index=index_in(rows.shape, int(extremes[9]), rows.parts),
        zero_references=int(counts[7]),
        reference_range=_read_range(extremes[0:2], rows.exponent, int(counts[4])),
        candidate_range=_read_range(extremes[6:8], rows.exponent, int(counts[4])),
        sketch=sketch,
        reference_values=values[0],
        candidate_values=values[1],
    )
    if not channels:
        return floats, None
    return floats, Channels(
        axis=rows.layout.axis,
        total=channels,
        indices=np.arange(channels),
        error2=squares[0],
        reference2=squares[1],
        disagreeing=disagreeing,
    )


def index_in(shape: tuple[int, ...], at: int, parts: int = 1) -> tuple[int, ...] | None:
    """The index of flat element `at`; None for the kernels' "nowhere"."""
    if at >= NOWHERE or at < 0:
        return None
    return tuple(int(i) for i in np.unravel_index(at // parts, shape)) if shape else ()


@contextlib.contextmanager
def _borrow_tables() -> Iterator[_Tables]:
    """Cleared tables. On an error they are dropped: nobody knows what they hold."""
    try:
        tables = _IDLE.pop()
    except IndexError:
        tables = _Tables(
            sketch=np.zeros((LANES, SKETCH_WIDTH), np.int64), values=np.zeros((2, LANES, VALUE_BINS), np.int64)
        )
    yield tables
    _IDLE.append(tables)


def _read_sketch(table: np.ndarray, counts: np.ndarray, extremes: np.ndarray, exponent: int) -> Sketch:
    """Empties the part of the table that was used. Bin 0 of the kernel holds zeros and what is below the range."""
    used = slice(int(extremes[2]), int(extremes[3]) + 1)
    totals = table[:, used].sum(axis=0)
    table[:, used] = 0
    held = np.flatnonzero(totals)
    bins, found = held + used.start, totals[held]
    lowest = int(found[0]) if bins.size and bins[0] == 0 else 0
    inside = bins > 0
    return Sketch(
        zeros=int(counts[5]),
        below=lowest - int(counts[5]) if lowest else 0,
        floor=scale_by_power(1.0, exponent - OCTAVES),
        bins=Histogram(
            bins=bins[inside] - 1 + (exponent - OCTAVES) * BINS_PER_OCTAVE, counts=found[inside].astype(np.int64)
        ),
    )


def _read_values(table: np.ndarray, exponent: int) -> Histogram:
    """Empties the table, whose bins are sign and biased exponent; an exponent of 0 is zero (or scaled away)."""
    totals = table.sum(axis=0)
    table[:] = 0
    half = VALUE_BINS // 2
    zero = totals[:1] + totals[half : half + 1]
    ordered = np.concatenate([totals[:half:-1], zero, totals[1:half]])
    held = np.flatnonzero(ordered)
    signed = held - (half - 1)
    bins = np.sign(signed) * (np.abs(signed) - _BIAS + exponent + VALUE_OFFSET)
    return Histogram(bins=bins, counts=ordered[held])


def _read_range(keys: np.ndarray, exponent: int, finite: int) -> tuple[float, float]:
    """Ordered integers back to values: negative ones were mirrored."""
    if not finite:
        return 0.0, 0.0
    low, high = (keys ^ ((keys >> 63) & _MAGNITUDE)).view(np.float64)
    return scale_by_power(float(low), exponent) + 0.0, scale_by_power(float(high), exponent) + 0.0
