"""An error by part: squared errors and squared references of a tensor, summed over all but one of its axes.

A number for a whole tensor is that of its largest part. Class scores beside boxes in pixels, one row of many, half of the
channels: each index of each axis (samples of a batch, channels, fields, rows) has an error of its own here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Parts", "measure_parts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Of each axis of `shape`, float64 arrays as long as the axis: sums of squares, in the tensor's own unit squared."""

    shape: tuple[int, ...]
    errors: tuple[np.ndarray, ...]
    references: tuple[np.ndarray, ...]

    def scaled(self, errors: float, references: float) -> Parts:
        """Errors times one number plus references times another, in place of the errors."""
        sums = tuple(errors * e + references * r for e, r in zip(self.errors, self.references, strict=True))
        return Parts(shape=self.shape, errors=sums, references=self.references)

    def plus(self, other: Parts) -> Parts:
        """Errors of both; references of this one."""
        sums = tuple(mine + its for mine, its in zip(self.errors, other.errors, strict=True))
        return Parts(shape=self.shape, errors=sums, references=self.references)


def measure_parts(reference: np.ndarray, candidate: np.ndarray) -> Parts | None:
    """The parts of `candidate` against `reference`; None where these are no floats of one shape with at least one axis.

    Elements that are not finite on a side are left out: they are counted elsewhere, and never pooled with numbers.
    """
    if reference.dtype.kind != "f" or reference.shape != candidate.shape or not reference.ndim or not reference.size:
        return None
    known, found = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    finite = np.isfinite(known) & np.isfinite(found)
    if not finite.all():
        known, found = np.where(finite, known, 0.0), np.where(finite, found, 0.0)
    squares = np.square(found - known), np.square(known)
    errors, references = (tuple(_sum_other_axes(one, axis) for axis in range(one.ndim)) for one in squares)
    return Parts(shape=reference.shape, errors=errors, references=references)


def _sum_other_axes(squares: np.ndarray, axis: int) -> np.ndarray:
    """Sums over every axis but one."""
    sums: np.ndarray = squares.sum(axis=tuple(other for other in range(squares.ndim) if other != axis))
    return sums
