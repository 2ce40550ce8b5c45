"""Outputs held against each other, and marks of inputs: what the search compares.

Errors are relative to the larger of the two norms, so that no scale of the input makes the error without a step look large.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Arrays = Mapping[str, np.ndarray]

__all__ = ["is_informative", "mark_of", "measure_outputs", "norm_of"]


def norm_of(array: np.ndarray) -> float:
    """The Euclidean norm of all elements. Not by BLAS, whose threads wait for each other where the processors are busy."""
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.square(array).sum()))


def measure_outputs(outputs: Arrays, candidate: Arrays, bounds: Mapping[str, float]) -> tuple[float, float, float]:
    """The worst output's error, the worst error over its bound, and the mean cosine of the centred outputs.

    Elements that are not finite must be so on both sides: else the error is infinite.
    """
    errors, excesses, cosines = [0.0], [0.0], []
    for name, bound in bounds.items():
        mine, its = (np.asarray(each[name], np.float64) for each in (outputs, candidate))
        if mine.shape != its.shape or not np.array_equal(np.isfinite(mine), np.isfinite(its)):
            return math.inf, math.inf, 0.0
        finite = np.isfinite(its)
        mine, its = mine[finite], its[finite]
        size = max(norm_of(mine), norm_of(its))
        off = norm_of(mine - its)
        error = off / size if size else 0.0
        errors.append(error)
        excesses.append(error / bound)
        centred = [each - each.mean() if each.size > 1 else each for each in (mine, its)]
        norms = norm_of(centred[0]) * norm_of(centred[1])
        cosines.append(float((centred[0] * centred[1]).sum()) / norms if norms else 0.0)
    return max(errors), max(excesses), sum(cosines) / max(1, len(cosines))


def is_informative(array: np.ndarray) -> bool:
    """Whether an array says something: one whose finite elements are all the same is another fault's trace."""
    if array.size < 2 or array.dtype.kind != "f":
        return array.dtype.kind != "f" or bool(np.isfinite(array).all())
    values = array[np.isfinite(array)]
    return values.size > 0 and bool((values != values[0]).any())


def mark_of(inputs: Arrays, weights: dict[int, np.ndarray]) -> tuple[object, ...]:
    """The same for arrays that differ by rounding, and by next to no accident for others: norm and two projections.

    `weights` holds the directions by size, and gets those that it lacks.
    """
    marks: list[object] = []
    for name in sorted(inputs):
        array = np.asarray(inputs[name], np.float64).ravel()
        if array.size not in weights:
            weights[array.size] = np.random.default_rng(array.size).standard_normal((2, array.size))
        norm = norm_of(array)
        if not math.isfinite(norm) or not norm:
            marks.append((name, array.size, str(norm)))
            continue
        projected = (weights[array.size] * array).sum(axis=1) / norm
        marks.append((name, inputs[name].shape, f"{norm:.4e}", *(round(float(each), 4) for each in projected)))
    return tuple(marks)
