"""Whether a constant's elements lie on a grid that no file declares: integers times a step, of the whole, an index or a block.

The step is read off the elements themselves: the smallest distance between two of them, or a half or a third of it. n elements
that lie that near to multiples of it do so by accident with a probability of (2 * `_NEAR`)^n. What the grid is of must lie within
half a step, but for what is cut off at its ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.grids import sharings_of
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEAR = 0.02  # of a step
_FEW = 8  # elements of a group: fewer lie on a grid by accident
_BITS = 8  # more are hardly told from FP32
_HALF = 0.5 + _NEAR
_MOST_GROUPS = 1 << 14
_LOOKED_AT = 1 << 12  # elements, first: most constants have too many values


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGrid:
    """The `bits` that the levels need, the least and the largest of the `steps`, what shares one, the part that is `cut` off."""

    bits: int
    steps: tuple[float, float]
    words: str
    cut: float


def grid_of(before: np.ndarray, after: np.ndarray) -> FoundGrid | None:
    """The grid that `after` lies on and `before` does not; both float64, of one shape."""
    if before.size < 2 * _FEW or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    for sharing in sharings_of(before.shape, _FEW):
        count = sharing.count(before.shape)
        if count > _MOST_GROUPS:
            continue
        known = list(_grids_of_groups(sharing.rows(before), sharing.rows(after)))
        if len(known) < count or not any(step for step, _, _ in known):
            continue
        steps = [step for step, _, _ in known if step]
        bits = max(levels for _, levels, _ in known)
        cut = sum(count for _, _, count in known) / before.size
        return FoundGrid(bits=bits, steps=(min(steps), max(steps)), words=sharing.words, cut=cut)
    return None


def _grids_of_groups(rows: Iterator[np.ndarray], its_rows: Iterator[np.ndarray]) -> Iterator[tuple[float, int, int]]:
    """What `_grid_of_group` says of each pair of rows, as far as they lie on grids."""
    for reference, candidate in zip(rows, its_rows, strict=False):
        short = reference.size < _FEW  # what is left at the end of an axis says nothing
        found = (0.0, 0, 0) if short else _grid_of_group(reference, candidate)
        if found is None:
            return
        yield found


def _grid_of_group(before: np.ndarray, after: np.ndarray) -> tuple[float, int, int] | None:
    """Step, bits and the number of elements that are cut off; None where it is no grid. A group of zeros has no step."""
    if np.unique(after[:_LOOKED_AT]).size > 2**_BITS:
        return None
    values = np.unique(after)
    if values.size == 1 or values.size > 2**_BITS:
        return (0.0, 0, 0) if not values.any() else None
    gap = float(np.diff(values).min())
    low, high = float(values[0]), float(values[-1])
    for part in (1, 2, 3):
        step = gap / part
        if not 0 < (high - low) <= step * (2**_BITS - 1 + _NEAR):
            return None
        # A refined step: what the farthest two are apart, over their levels.
        step = (high - low) / round((high - low) / step)
        places = values / step
        if np.abs(places - np.round(places)).max() > _NEAR:
            continue
        off = np.abs(after - before) > _HALF * step
        cut = off & (((after == high) & (before > high)) | ((after == low) & (before < low)))
        if (off != cut).any() or np.abs(before / step - np.round(before / step)).max() <= _NEAR:
            return None
        return step, _bits_of(low, high, step), int(cut.sum())
    return None


def _bits_of(low: float, high: float, step: float) -> int:
    """Bits of the integers from `low` to `high`, signed where some are below nought."""
    if low >= 0:
        return max(1, int(np.ceil(np.log2(round(high / step) + 1))))
    most = max(-round(low / step), round(high / step) + 1)
    return 1 + int(np.ceil(np.log2(most)))
