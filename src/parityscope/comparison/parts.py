"""An error by part: squared errors and squared references of a tensor, summed over all but one of its axes.

A number for a whole tensor is that of its largest part. Class scores beside boxes in pixels, one row of many, half of the
channels: each index of each axis (samples of a batch, channels, fields, rows) has an error of its own here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FEWEST = 16  # elements: the mean square of fewer normal numbers is off by a factor of two once in ten times
_LONG = (
    8  # elements of the last axis, from which on a product with itself is faster than squares and their sums; measured
)
_LEVELS = 32  # chosen: at the last a part is 2^31 times smaller than all, less than FP32 adds to it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Of each axis of `shape`, float64 arrays as long as the axis: sums of squares, in the tensor's own unit squared.

    `whole` is the squared error of all, where `errors` hold only some of the parts.
    """

    shape: tuple[int, ...]
    errors: tuple[np.ndarray, ...]
    references: tuple[np.ndarray, ...]
    whole: float | None = None

    def scaled(self, errors: float, references: float) -> Parts:
        """Errors times one number plus references times another, in place of the errors."""
        sums = tuple(errors * e + references * r for e, r in zip(self.errors, self.references, strict=True))
        return Parts(shape=self.shape, errors=sums, references=self.references)

    def levelled(self) -> Parts:
        """With the largest error of an axis in each of its parts."""
        sums = tuple(np.full_like(errors, errors.max(initial=0.0)) for errors in self.errors)
        return Parts(shape=self.shape, errors=sums, references=self.references)

    def plus(self, other: Parts) -> Parts:
        """Errors of both; references of this one."""
        sums = tuple(mine + its for mine, its in zip(self.errors, other.errors, strict=True))
        return Parts(shape=self.shape, errors=sums, references=self.references)

    def errors_of(self, axis: int) -> np.ndarray:
        """The squared errors of an axis; of -1 that of the whole, as one element."""
        if axis >= 0:
            return self.errors[axis]
        return np.array([self.errors[0].sum() if self.whole is None else self.whole])

    def references_of(self, axis: int) -> np.ndarray:
        """The squared references of an axis; of -1 that of the whole, as one element."""
        return self.references[axis] if axis >= 0 else np.array([self.references[0].sum()])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LargestParts:
    """Of each part of a tensor the largest error over samples, beside the square of its sample's whole reference.

    `found` holds by axis and level float64 (4, length of the axis): squared error, squared reference, squared reference of the
    whole sample, and the sample, -1 where there is none. A part is of level k where it is 2^k times smaller than its whole
    sample: so one that is small on a sample is not outdone by the honest error of one that is large on another.
    """

    found: Mapping[tuple[int, int], np.ndarray]

    def merge(self, other: LargestParts) -> LargestParts:
        """Of both; where they are as large, this one's."""
        merged = dict(self.found)
        for place, its in other.found.items():
            mine = merged.get(place)
            merged[place] = its if mine is None else _larger_of(mine, its)
        return LargestParts(found=merged)


def axes_with_parts(shape: Sequence[int]) -> list[int]:
    """The axes whose parts have elements enough for an expectation of their own."""
    size = math.prod(shape)
    return [axis for axis, length in enumerate(shape) if length > 1 and size // length >= _FEWEST]


def measure_parts(reference: np.ndarray, candidate: np.ndarray) -> Parts | None:
    """The parts of `candidate` against `reference`; None where these are no floats of one shape with at least one axis.

    Elements that are not finite on a side are left out: they are counted elsewhere, and never pooled with numbers.
    """
    if reference.shape != candidate.shape or not _has_parts(reference):
        return None
    error, known = _finite_of(reference[None], candidate[None])
    axes = range(reference.ndim)
    errors, references = (tuple(sums[0] for sums in _sum_squares(one, axes).values()) for one in (error, known))
    return Parts(shape=reference.shape, errors=errors, references=references)


def measure_largest(
    samples: Sequence[int], reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]
) -> LargestParts | None:
    """The largest errors by part of `samples`, all tensors of one shape; None as `measure_parts`, or without such parts."""
    axes = axes_with_parts(reference[0].shape)
    if not axes or not _has_parts(reference[0]):
        return None
    ours, theirs = (np.stack(side) if len(side) > 1 else side[0][None] for side in (reference, candidate))
    error, known = _finite_of(ours, theirs)
    errors = _sum_squares(error, axes)
    if not errors[axes[0]].any():
        return LargestParts(found={})
    references = _sum_squares(known, axes)
    wholes = references[axes[0]].sum(axis=1)
    numbers = np.array(samples, np.float64)
    found = {}
    for axis in axes:
        for level, entry in _largest_by_level(errors[axis], references[axis], wholes, numbers):
            found[axis, level] = entry
    return LargestParts(found=found)


def _has_parts(array: np.ndarray) -> bool:
    return bool(array.dtype.kind == "f" and array.ndim and array.size)


def _finite_of(reference: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors and references as float64, zero where a side is not finite."""
    known = np.asarray(reference, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.subtract(candidate, known, dtype=np.float64)
        finite = np.isfinite(error.sum())
    if not finite:
        kept = np.isfinite(error)
        error, known = np.where(kept, error, 0.0), np.where(kept, known, 0.0)
    return error, known


def _sum_squares(values: np.ndarray, axes: Sequence[int]) -> dict[int, np.ndarray]:
    """Of each of `axes` of tensors (n, ...) the sums of squares over all others, (n, length); each axis is added up once."""
    sums = {}
    last = values.ndim - 2
    left = None
    if values.shape[-1] >= _LONG:
        rows = values.reshape(len(values), -1, values.shape[-1])
        if last in axes:
            sums[last] = np.einsum("nij,nij->nj", rows, rows)
        left = np.einsum("nij,nij->ni", rows, rows).reshape(values.shape[:-1])
        last -= 1
    left = np.square(values) if left is None else left
    for axis in range(last, -1, -1):
        if axis in axes:
            sums[axis] = left.reshape(len(left), -1, left.shape[-1]).sum(axis=1)
        left = left.sum(axis=-1)
    return {axis: sums[axis] for axis in axes}


def _largest_by_level(
    errors: np.ndarray, references: np.ndarray, wholes: np.ndarray, samples: np.ndarray
) -> list[tuple[int, np.ndarray]]:
    """The entries of an axis, of sums (n, length), whole references (n,) and the samples' numbers (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.nan_to_num(0.5 * np.log2(wholes[:, None] / references), nan=0.0, posinf=_LEVELS)
        shares = np.nan_to_num(errors / wholes[:, None], nan=0.0, posinf=np.inf)
    levels = np.clip(size, 0, _LEVELS - 1).astype(np.intp)
    columns = np.arange(errors.shape[1])
    entries = []
    for level in np.flatnonzero(np.bincount(levels[shares > 0], minlength=_LEVELS)).tolist():
        held = np.where(levels == level, shares, 0.0)
        at = held.argmax(axis=0)
        entry = np.stack([errors[at, columns], references[at, columns], wholes[at], samples[at]])
        entry[:, held[at, columns] <= 0.0] = _NOTHING
        entries.append((level, entry))
    return entries


_NOTHING = np.array([[0.0], [0.0], [1.0], [-1.0]])


def _larger_of(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Of two entries, as long as the longer, each column of the one whose error is the larger part of its sample."""
    length = max(first.shape[1], second.shape[1])
    first, second = (
        np.concatenate([one, np.repeat(_NOTHING, length - one.shape[1], axis=1)], axis=1)
        if one.shape[1] < length
        else one
        for one in (first, second)
    )
    with np.errstate(divide="ignore"):
        return np.where(second[0] / second[2] > first[0] / first[2], second, first)
