"""The ends of a tensor's magnitudes: its largest finite one and its smallest that is not zero.

float32 is read as integers: without its sign bit a float32 orders as its bits do, so that four passes over a block that
stays in the cache find both ends. Subtracting one wraps zeros round to the largest integer, which leaves them out of the
minimum. Blocks with NaN or infinity (their bits are 0x7F800000 or more), and other types, take the plain way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.expectation.forecasts import MagnitudeRange

if TYPE_CHECKING:
    from parityscope.records import Site

_BLOCK = 1 << 16  # elements: 256 KiB of float32, inside a core's own cache
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = 0x7F800000


def is_real(array: np.ndarray) -> bool:
    """Whether a tensor holds floats; ml_dtypes' own types are of kind V."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and array.dtype.names is None)


def range_of(site: Site, array: np.ndarray) -> MagnitudeRange:
    """The range of one tensor of floats, any shape."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.itemsize < 4:
        flat = flat.astype(np.float32)
    found = MagnitudeRange(site=site, elements=0, largest=0.0, smallest=0.0, zeros=0, nonfinite=0)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        part = _range_by_bits(site, block) if block.dtype == np.float32 else None
        found = join_ranges(found, part or _range_of_block(site, block))
    return found


def join_ranges(one: MagnitudeRange, other: MagnitudeRange) -> MagnitudeRange:
    """The range over the elements of both."""
    least = [smallest for smallest in (one.smallest, other.smallest) if smallest]
    return replace(
        one,
        elements=one.elements + other.elements,
        largest=max(one.largest, other.largest),
        smallest=min(least, default=0.0),
        zeros=one.zeros + other.zeros,
        nonfinite=one.nonfinite + other.nonfinite,
    )


def _range_by_bits(site: Site, block: np.ndarray) -> MagnitudeRange | None:
    """The range of a block of float32; None if it holds NaN or infinity."""
    bits = block.view(np.uint32) & _MAGNITUDE
    largest = bits.max()
    if largest >= _INFINITY:
        return None
    zeros = int(bits.size - np.count_nonzero(bits))
    bits -= np.uint32(1)
    smallest = (bits.min() + np.uint32(1)) if zeros < bits.size else np.uint32(0)
    ends = np.array([smallest, largest], np.uint32).view(np.float32)
    return MagnitudeRange(
        site=site, elements=block.size, largest=float(ends[1]), smallest=float(ends[0]), zeros=zeros, nonfinite=0
    )


def _range_of_block(site: Site, block: np.ndarray) -> MagnitudeRange:
    magnitude = np.abs(block)
    finite = magnitude[np.isfinite(magnitude)]
    some = finite[finite > 0]
    smallest = float(some.min(initial=math.inf))
    return MagnitudeRange(
        site=site,
        elements=block.size,
        largest=float(some.max(initial=0.0)),
        smallest=smallest if some.size else 0.0,
        zeros=int(finite.size - some.size),
        nonfinite=int(block.size - finite.size),
    )
