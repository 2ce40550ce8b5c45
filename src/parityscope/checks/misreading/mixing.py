"""(reference's output, candidate's) on several samples -> which sums of its fields the candidate's fields are.

A field is an index of the last axis, or of the second. Corners of a box written as its centre and size, colours in another
space: each wrong field is a sum of few of the model's, the same in every row of every sample. That a field is scaled or shifted
alone is nothing of that kind: a last layer does so itself. The factors are fitted on every second row, by least squares, and
judged on all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.distance import distance_between
from parityscope.hypotheses.fitting import round_to_nice

if TYPE_CHECKING:
    from collections.abc import Sequence

    Both = tuple[np.ndarray, np.ndarray]

__all__ = ["MixedFields", "explain_fields"]

_MOST_FIELDS = 128  # along an axis; chosen: detectors of 80 classes have 85
_TERMS = 3  # of a sum, and an offset; chosen: a centre is a half of two, a corner as well
_NOTHING = 1e-4  # of a field's size: what a term below it adds is left out; chosen
_ROWS_EACH = 4  # rows for each number that is fitted; chosen: three of them are predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFields:
    """What the changed fields are, in words, and the worst relative L2 error that is left of any sample."""

    words: str
    error: float


def explain_fields(pairs: Sequence[Both], limit: float) -> MixedFields | None:
    """Which sums of the reference's fields the candidate's are, to a relative L2 error of `limit`; None if they are none."""
    rank = pairs[0][0].ndim
    for axis in dict.fromkeys((rank - 1, 1)) if rank > 1 else ():
        count = pairs[0][0].shape[axis]
        if not 1 < count <= _MOST_FIELDS or any(mine.shape[axis] != count for mine, _ in pairs):
            continue
        mine, its = (np.concatenate([_rows_along(pair[side], axis) for pair in pairs]) for side in (0, 1))
        sums = _fit_sums(mine, its, limit)
        if not any(np.delete(factors[:-1], field).any() for field, factors in sums.items()):
            continue
        made = [_put_in(reference, axis, sums) for reference, _ in pairs]
        error = max(distance_between(one, candidate) for one, (_, candidate) in zip(made, pairs, strict=True))
        if error <= limit:
            said = "; ".join(f"field {field} = {_say_sum(factors)}" for field, factors in sums.items())
            return MixedFields(words=f"holds sums of the model's fields along axis {axis}: {said}", error=error)
    return None


def _rows_along(array: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _fit_sums(mine: np.ndarray, its: np.ndarray, limit: float) -> dict[int, np.ndarray]:
    """The factors of each field that differs, the offset last; nothing where one of them is no sum of few."""
    changed = [field for field in range(mine.shape[1]) if distance_between(mine[:, field], its[:, field]) > limit]
    table = np.column_stack([mine, np.ones(len(mine))])
    sizes = np.sqrt(np.square(table).mean(axis=0))
    used = sizes > 0
    fitted = table[::2, used] / sizes[used]
    if (
        len(fitted) < _ROWS_EACH * used.sum()
        or np.linalg.matrix_rank(fitted, tol=1e-5 * np.sqrt(len(fitted))) < used.sum()
    ):
        return {}
    found: dict[int, np.ndarray] = {}
    for field in changed:
        factors = np.zeros(len(sizes))
        factors[used] = np.linalg.lstsq(fitted, its[::2, field], rcond=None)[0] / sizes[used]
        whole = float(np.sqrt(np.square(its[:, field]).mean()))
        factors[np.abs(factors) * sizes < _NOTHING * whole] = 0.0
        if np.count_nonzero(factors[:-1]) > _TERMS:
            return {}
        found[field] = np.array([round_to_nice(float(factor))[0] if factor else 0.0 for factor in factors])
    return found


def _put_in(reference: np.ndarray, axis: int, sums: dict[int, np.ndarray]) -> np.ndarray:
    """The reference's output with these fields."""
    rows = np.moveaxis(reference, axis, -1)
    made = rows.copy()
    for field, factors in sums.items():
        made[..., field] = rows @ factors[:-1] + factors[-1]
    return np.moveaxis(made, -1, axis)


def _say_sum(factors: np.ndarray) -> str:
    """A sum in words, its positive terms first."""
    terms = [(float(factor), f"field {field}") for field, factor in enumerate(factors[:-1]) if factor]
    terms += [(float(factors[-1]), "")] if factors[-1] else []
    said = ""
    for factor, name in sorted(terms, key=lambda term: term[0] < 0):
        size = f"{abs(factor):.6g}" if not name or abs(factor) != 1 else ""
        sign = ("-" if factor < 0 else "") if not said else " - " if factor < 0 else " + "
        said += sign + " x ".join(filter(None, (size, name)))
    return said or "0"
