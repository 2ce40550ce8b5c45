"""Grids of quantization: which elements share a scale, how many levels there are, and what rule chose the scale.

One record serves the generators, which put constants and inputs on a grid, and the comparison with the candidate's own
constants, which asks whether they lie on one.

Sources: the ONNX operator specification (QuantizeLinear with `axis` and `block_size`, DynamicQuantizeLinear); Jacob et al.,
Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference (CVPR 2018): a zero point within
the range; Wu et al., Integer Quantization for Deep Learning Inference (arXiv:2004.09602): largest value and percentiles.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BLOCKS = (32, 64, 128, 16, 256)  # elements along an axis that share a scale, as in weights of 4 bits
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which elements share a scale: all, those of one index of `axis`, or of a run of `block` along it (the last is shorter)."""

    axis: int | None = None
    block: int = 0

    @property
    def words(self) -> str:
        """Completes "quantized to 8 bits ..."."""
        if self.axis is None:
            return "as a whole"
        return (
            f"in blocks of {self.block} along axis {self.axis}" if self.block else f"at each index of axis {self.axis}"
        )

    def reduce(self, array: np.ndarray, reduction: np.ufunc) -> np.ndarray:
        """A number of each group, shaped so that it broadcasts to the array."""
        if self.axis is None:
            return np.asarray(reduction.reduce(array, axis=None, keepdims=True))
        if not self.block:
            return np.asarray(reduction.reduce(array, axis=self.others(array.ndim), keepdims=True))
        length = array.shape[self.axis]
        found = reduction.reduceat(array, np.arange(0, length, self.block), self.axis)
        return np.repeat(found, self.block, self.axis)[(slice(None),) * self.axis + (slice(length),)]

    def others(self, rank: int) -> tuple[int, ...]:
        """The axes over which an index of the axis goes; all where the array is one group."""
        return tuple(other for other in range(rank) if other != self.axis)

    def rows(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """The elements of each group."""
        if self.axis is None:
            yield array.reshape(-1)
            return
        by_axis = np.moveaxis(array, self.axis, 0 if not self.block else -1)
        if not self.block:
            yield from by_axis.reshape(len(by_axis), -1)
            return
        for row in by_axis.reshape(-1, by_axis.shape[-1]):
            yield from (row[start : start + self.block] for start in range(0, row.size, self.block))

    def count(self, shape: Sequence[int]) -> int:
        """How many groups an array of that shape falls into."""
        if self.axis is None:
            return 1
        if not self.block:
            return shape[self.axis]
        size = int(np.prod(shape))
        return size // shape[self.axis] * -(-shape[self.axis] // self.block)


def sharings_of(shape: Sequence[int], least: int = 2) -> Iterator[Sharing]:
    """The whole, each index of an axis, each block along an axis that is longer, of groups with `least` elements or more."""
    yield Sharing()
    size = int(np.prod(shape))
    for axis, length in enumerate(shape if len(shape) > 1 else ()):
        if length > 1 and size // length >= least:
            yield Sharing(axis=axis)
    for axis, block in itertools.product(reversed(range(len(shape))), BLOCKS):
        if shape[axis] > block >= least:
            yield Sharing(axis=axis, block=block)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRule:
    """How the ends of a group give its scale: of `symmetric` grids by the largest element over `levels`, else by both ends.

    Args:
        words: Completes "quantized to 8 bits as a whole, ...": "" for the usual rule.
        bits: What naming the rule costs beside the usual one.
        symmetric: Zero is the middle of the levels, and no zero point is kept.
        above: Levels between zero and the largest element, less 2^(bits - 1): -1 (127 of 8 bits), -0.5 or 0.
        zero: Whether zero is a level (with a zero point that is rounded).
        power_of_two: The scale is the next power of two above.
        part: Which quantile of the sizes is taken for the largest.
    """

    words: str = ""
    bits: float = 0.0
    symmetric: bool = True
    above: float = -1.0
    zero: bool = True
    power_of_two: bool = False
    part: float = 1.0


# The usual ones of the toolkits: largest over 127; a zero point; over 127.5 and 128; a least value that is kept as it is;
# shifts in place of products; sizes cut off at a percentile.
SYMMETRIC, ZERO_POINT = GridRule(), GridRule(words="with a zero point", symmetric=False)
_RULES = (
    SYMMETRIC,
    ZERO_POINT,
    GridRule(words="all levels used", bits=2, above=0.0),
    GridRule(words="half a level wider", bits=3, above=-0.5),
    GridRule(words="from the least value on", bits=2, symmetric=False, zero=False),
    GridRule(words="scales powers of two", bits=2, power_of_two=True),
    *(
        GridRule(words=f"cut off at the {100 * part:g} % percentile of the sizes", bits=4, part=part)
        for part in (0.9999, 0.999, 0.99, 0.9995, 0.995)
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Levels of so many `bits` that the elements of each group lie on."""

    bits: int
    sharing: Sharing
    rule: GridRule

    @property
    def words(self) -> str:
        """Completes "weight ..."."""
        more = f", {self.rule.words}" if self.rule.words else ""
        return f"quantized to {self.bits} bits {self.sharing.words}{more}"

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The array on the grid, in its own type."""
        wide = array.astype(np.float64)
        rule, half = self.rule, 2 ** (self.bits - 1)
        if rule.symmetric:
            scale = np.maximum(self._largest(np.abs(wide)), _TINY) / (half + rule.above)
            if rule.power_of_two:
                scale = np.exp2(np.ceil(np.log2(scale)))
            lowest = -half if rule.above > -1 else 1 - half
            return np.asarray(np.clip(np.round(wide / scale), lowest, half - 1) * scale, array.dtype)
        low, high = (self.sharing.reduce(wide, reduction) for reduction in (np.minimum, np.maximum))
        if rule.zero:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = np.where(high > low, high - low, 1.0) / (2 * half - 1)
        first = np.round(low / scale) * scale if rule.zero else low
        return np.asarray(np.clip(np.round((wide - first) / scale), 0, 2 * half - 1) * scale + first, array.dtype)

    def _largest(self, sizes: np.ndarray) -> np.ndarray:
        if self.rule.part == 1.0:
            return self.sharing.reduce(sizes, np.maximum)
        over = None if self.sharing.axis is None else self.sharing.others(sizes.ndim)
        return np.asarray(np.quantile(sizes, self.rule.part, axis=over, keepdims=True))


def grids_of(
    shape: Sequence[int], bits: Sequence[int], fits: Callable[[GridRule], bool] = lambda _: True
) -> Iterator[Grid]:
    """The grids of so many bits that an array of a shape may lie on, the usual rules first."""
    for rule, sharing, count in itertools.product(filter(fits, _RULES), tuple(sharings_of(shape)), bits):
        if rule.part == 1.0 or not sharing.block:
            yield Grid(bits=count, sharing=sharing, rule=rule)
