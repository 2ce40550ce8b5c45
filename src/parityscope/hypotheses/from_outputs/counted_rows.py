"""Outputs with as many rows as values say: what a response leaves of them, whatever number and order of rows it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from parityscope.comparison.rows import flatten_rows, lone_axis_apart, pair_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Arrays = Mapping[str, np.ndarray]


def counted_axes(reference: Sequence[Arrays], candidate: Sequence[Arrays], outputs: Sequence[str]) -> dict[str, int]:
    """The axis of the rows, by output: that along which alone the sides' shapes differ on a sample."""
    found = {}
    for mine, its in zip(reference, candidate, strict=True):
        for name in (name for name in outputs if name in mine and name in its):
            axis = lone_axis_apart(mine[name].shape, its[name].shape)
            if axis is not None:
                found[name] = axis
    return found


def beside_rows(reference: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """What lies beside each row of the reference, in its shape; where nothing does, the row itself. Rows of both are alike."""
    partners = pair_rows([(reference, array, axis)])
    there = partners < array.shape[axis]
    found = np.moveaxis(reference, axis, 0).astype(array.dtype)
    found[there] = np.moveaxis(array, axis, 0)[partners[there]]
    return np.moveaxis(found, 0, axis)


class RowsError(NamedTuple):
    """The squared error of an output, how many elements are off, and how many are finite on one side alone."""

    squares: float = 0.0
    wrong: int = 0
    lost: int = 0


def error_in_rows(outputs: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> list[RowsError]:
    """The error of each output over all rows of both sides.

    `outputs` are (expected, found, axis of the rows), float64, alike in all else. Rows are paired, those of outputs with as many
    rows on either side together; one without a partner is off by its own size.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for place, (expected, found, axis) in enumerate(outputs):
        groups.setdefault((expected.shape[axis], found.shape[axis]), []).append(place)
    told = [RowsError()] * len(outputs)
    for places in groups.values():
        members = [outputs[place] for place in places]
        if all(np.array_equal(expected, found) for expected, found, _ in members):
            continue
        partners = pair_rows(members)
        for place in places:
            told[place] = _error_of_pairs(*outputs[place], partners)
    return told


def _error_of_pairs(expected: np.ndarray, found: np.ndarray, axis: int, partners: np.ndarray) -> RowsError:
    mine, its = (flatten_rows(one, axis) for one in (expected, found))
    there = partners < len(its)
    left = np.setdiff1d(np.arange(len(its)), partners)
    held, given = np.isfinite(mine), np.isfinite(its)
    lost = int((held[there] != given[partners[there]]).sum())
    mine, its = np.where(held, mine, 0.0), np.where(given, its, 0.0)
    rest = np.concatenate([mine[there] - its[partners[there]], mine[~there], its[left]])
    return RowsError(float(np.square(rest).sum()), int(np.count_nonzero(rest)), lost)
