"""How alike two values of two graphs are: their distance, whether they may be one, and the fingerprint that finds partners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.comparison.rows import fill_rows_apart, lone_axis_apart
from parityscope.spilling import note_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.hypotheses.from_other_graph.reading import Values

_LOOKED_AT = 4096  # elements of a value by which partners are sought; all of them decide


def relative_distance(reference: Any, candidate: Any) -> float:
    """The relative L2 distance of two values; elements that are not finite on one side only count as one each.

    They are of one shape, or one has more rows, of which each without a partner is off by its own size.
    """
    if reference is candidate or np.array_equal(reference, candidate):
        return 0.0
    note_read(reference.nbytes + candidate.nbytes)
    reference, candidate = fill_rows_apart(reference, candidate)
    mine, its = (_flatten_for_norms(side) for side in (reference, candidate))
    with np.errstate(all="ignore"):
        error, size = (float(np.vdot(part, part)) for part in (its - mine, mine))
    if np.isfinite(error) and np.isfinite(size) and size > 0:
        return float(np.sqrt(error / size))
    mine, its = mine.astype(np.float64), its.astype(np.float64)
    both = np.isfinite(mine) & np.isfinite(its)
    lost = int((~both & (mine != its) & ~(np.isnan(mine) & np.isnan(its))).sum())
    size = float(np.linalg.norm(mine[both]))
    error = float(np.linalg.norm(its[both] - mine[both]))
    return (error / size if size > 0 else float(error > 0)) + lost


def _flatten_for_norms(array: np.ndarray) -> np.ndarray:
    """In one dimension, of a type whose norms are taken fast: what matches is not decided by the last bits."""
    return array.reshape(-1).astype(
        np.float32 if array.dtype.kind in "fV" and array.itemsize < 8 else np.float64, copy=False
    )


def outlines_of(values: Mapping[str, Any]) -> Values:
    """Arrays of the same shapes and types that take no memory; what is no array is left out."""
    return {
        name: np.broadcast_to(np.zeros((), value.dtype), value.shape)
        for name, value in values.items()
        if isinstance(value, np.ndarray)
    }


def is_numeric(value: Any) -> bool:
    """Whether it is an array of numbers that holds any."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiubV" and value.size > 0


def may_be_same(reference: Any, candidate: Any, *, counted: bool = False) -> bool:
    """Whether two values may be one: of one shape, and both floats, or both of one other type.

    `counted`: there are as many rows as values decide, so that one side may have more.
    """
    if not isinstance(reference, np.ndarray) or not isinstance(candidate, np.ndarray):
        return False
    if reference.shape != candidate.shape and not (
        counted and lone_axis_apart(reference.shape, candidate.shape) is not None
    ):
        return False
    floats = [array.dtype.kind in "fV" for array in (reference, candidate)]
    return all(floats) or (not any(floats) and reference.dtype == candidate.dtype)


def fingerprint_value(value: np.ndarray) -> np.ndarray:
    """Root mean square, mean and a fixed projection of elements spread over it; what is not finite counts as zero."""
    note_read(value.nbytes)
    flat = value.reshape(-1)
    flat = flat[:: max(1, flat.size // _LOOKED_AT)].astype(np.float64)
    flat = np.where(np.isfinite(flat), flat, 0.0)
    with np.errstate(all="ignore"):
        return np.array(
            [np.sqrt(np.square(flat).mean()), flat.mean(), (flat * np.cos(0.618 * np.arange(flat.size))).mean()]
        )
