"""(reference's output, candidate's) on several samples -> one order of one axis that makes the one of the other, or rolls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.distance import distance_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    # One output of one sample, of the reference and of the candidate.
    Both = tuple[np.ndarray, np.ndarray]

_FALL = 10.0  # as in _reproducing: 99 % of the error in squares
_FEWEST = 2  # samples: what one has in another order may be its own, as detections have
_LONGEST = 2048  # of an axis that is looked at; chosen, the classes of a vocabulary are not sorted anew
_NUMBERS = 4096  # by which an element of the axis is known again; chosen
_SHOWN = 6


def find_permutation(pairs: Sequence[Both], limit: float) -> tuple[str, float] | None:
    """The order in words, and the worst relative L2 error that it leaves of any sample; None if there is none.

    `limit` is the error that the arithmetic explains. The order has to be the same on all samples.
    """
    if len(pairs) < _FEWEST or len({side.shape for pair in pairs for side in pair}) != 1:
        return None
    before = min(distance_between(mine, its) for mine, its in pairs)
    for axis in range(pairs[0][0].ndim):
        order = _match_places(pairs, axis)
        if order is None:
            continue
        left = max(distance_between(np.take(mine, order, axis=axis), its) for mine, its in pairs)
        if left <= limit and left * _FALL <= before:
            moved = np.flatnonzero(order != np.arange(len(order)))
            said = ", ".join(f"{place} is the model's {order[place]}" for place in moved[:_SHOWN])
            more = f", and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
            return f"has its axis {axis} in another order, the same on every sample: {said}{more}", left
    return None


def find_rolls(pairs: Sequence[Both], limit: float) -> tuple[int, tuple[int, ...], float] | None:
    """The axis along which each sample is rolled, by how many places each, and the worst relative L2 error that is left.

    None if there is none. `limit` is the error that the arithmetic explains. How far may be another number on each sample, as
    paddings are.
    """
    for axis in range(pairs[0][0].ndim):
        found = [_find_roll(mine, its, axis, limit) for mine, its in pairs]
        left = max(left for _, left in found)
        if left <= limit and all(left * _FALL <= distance_between(*pair) for pair in pairs):
            return axis, tuple(by for by, _ in found), left
    return None


def _find_roll(reference: np.ndarray, candidate: np.ndarray, axis: int, limit: float) -> tuple[int, float]:
    """By how many places one array rolled along an axis comes nearest to the other, and what that leaves."""
    size = reference.shape[axis]
    found = [(0, distance_between(reference, candidate))]
    if 1 < size <= _LONGEST and reference.shape == candidate.shape:
        first = np.take(candidate, [0], axis)
        # The first values tell most of them apart.
        alike = [
            by for by in range(1, size) if distance_between(np.take(reference, [-by], axis), first) <= _FALL * limit
        ]
        for by in alike:
            left = distance_between(np.roll(reference, by, axis), candidate)
            found.append((by if 2 * by <= size else by - size, left))
    return min(found, key=lambda one: one[1])


def _match_places(pairs: Sequence[Both], axis: int) -> np.ndarray | None:
    """For each place of the axis the one of the reference that it is nearest to; None unless that is another order."""
    size = pairs[0][0].shape[axis]
    if not 1 < size <= _LONGEST or any(side.dtype.kind not in "fiu" for pair in pairs for side in pair):
        return None
    reference, candidate = (
        np.concatenate(
            [np.moveaxis(pair[side], axis, 0).reshape(size, -1).astype(np.float64) for pair in pairs], axis=1
        )
        for side in (0, 1)
    )
    step = max(1, reference.shape[1] // _NUMBERS)
    reference, candidate = reference[:, ::step], candidate[:, ::step]
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return None
    squares = (
        np.square(candidate).sum(axis=1)[:, None]
        + np.square(reference).sum(axis=1)[None]
        - 2.0 * candidate @ reference.T
    )
    order = np.argmin(squares, axis=1)
    another = len(np.unique(order)) == size and bool((order != np.arange(size)).any())
    return order if another else None
