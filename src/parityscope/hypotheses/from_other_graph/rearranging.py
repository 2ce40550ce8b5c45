"""The same elements at other places of an array of the same shape, nearly: transposed, reversed, slices in another order.

Exact rearrangements have words of their own (`constants`). These are for what was changed in another way besides, so that the two
can be told one after the other: transposed, then scaled.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.rows import assign_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALIKE = 0.99  # correlation with the rearranged, chosen: what is left is told apart
_FEW = 16  # elements: fewer are alike by accident
_LOOKED_AT = 1 << 16  # elements, spread, by which two arrays are held against each other
_MOST_AXES, _MOST_ROWS = 5, 1024
_BLOCKS = (2, 3, 4, 6, 8)


def find_rearrangement(before: np.ndarray, after: np.ndarray) -> tuple[str, np.ndarray] | None:
    """Words, and `before` so rearranged that it is most like `after`; None where nothing makes it nearly the same."""
    if before.size < _FEW or before.shape != after.shape or abs(_correlate_samples(before, after)) >= _ALIKE:
        return None
    best: tuple[float, str, np.ndarray] | None = None
    for words, array in _list_rearrangements(before, after):
        alike = _correlate_samples(array, after)
        if abs(alike) >= _ALIKE and (best is None or abs(alike) > abs(best[0]) + 1e-6):
            best = alike, words, array
    return None if best is None else best[1:]


def order_words(order: np.ndarray) -> str:
    """Words for an order of all indices of an axis that has a pattern: reversed, or blocks exchanged; "" for others."""
    count = order.size
    if count > 2 and np.array_equal(order, np.arange(count)[::-1]):
        return "reversed"
    for blocks in _BLOCKS:
        if count % blocks == 0 and count > blocks:
            rows = order.reshape(blocks, -1)
            starts = rows[:, 0] // rows.shape[1]
            if np.array_equal(rows, starts[:, None] * rows.shape[1] + np.arange(rows.shape[1])):
                return f"{blocks} blocks in the order {', '.join(map(str, starts.tolist()))}"
    return ""


def _list_rearrangements(before: np.ndarray, after: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for axes in itertools.permutations(range(before.ndim)) if 1 < before.ndim <= _MOST_AXES else ():
        if list(axes) == sorted(axes):
            continue
        moved = before.transpose(axes)
        if moved.shape == before.shape:
            yield f"transposed {list(axes)}", moved
        else:
            yield f"transposed {list(axes)} and read in the old shape", moved.reshape(before.shape)
    for axes in {(axis,) for axis in range(before.ndim)} | {tuple(range(before.ndim))[-2:]}:
        yield (
            f"reversed along {'axis' if len(axes) == 1 else 'the axes'} {', '.join(map(str, axes))}",
            np.flip(before, axes),
        )
    for axis in range(before.ndim):
        if 2 < before.shape[axis] <= _MOST_ROWS and before.size // before.shape[axis] >= _FEW:
            order = _assign_slices(before, after, axis)
            said = order_words(order)
            yield f"along axis {axis} {said or 'in another order'}", np.take(before, order, axis)


def _assign_slices(before: np.ndarray, after: np.ndarray, axis: int) -> np.ndarray:
    """Which slice of `before` each slice of `after` is most like."""
    reference, candidate = (_normalized_slices(array, axis) for array in (before, after))
    return assign_rows(-np.abs(candidate @ reference.T))


def _normalized_slices(array: np.ndarray, axis: int) -> np.ndarray:
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(sizes > 0, sizes, 1.0))


def _correlate_samples(one: np.ndarray, other: np.ndarray) -> float:
    step = max(1, one.size // _LOOKED_AT)
    flat = [array.reshape(-1)[::step] for array in (one, other)]
    reference, candidate = (array - array.mean() for array in flat)
    size = float(np.linalg.norm(reference) * np.linalg.norm(candidate))
    return float(reference @ candidate) / size if size > 0 else 0.0
