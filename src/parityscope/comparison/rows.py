"""Rows of order-free outputs (what TopK and non-maximum suppression give) paired before they are compared.

Outputs that belong together (logits and boxes, say) share their rows: row i of one is the same object as row i of the
other. The rows of the candidate are put into the order in which they are, all outputs together, nearest to the
reference's: the assignment with the least sum of

    sum over outputs of  mean over elements of ((reference - candidate) / deviation of the reference's output)^2

found exactly (SciPy's, by shortest augmenting paths: Crouse, IEEE TAES 52, 2016). Every row is used once, so that an object
that the candidate lacks stays an error. Matching can only lower an error: what is left is a lower bound of what differs. For
integers and booleans an element counts 0 or 1. Elements that are not finite must be the same on both sides; each that is not
counts as far as any two can be.

Where the rows lie: on axis 1 behind a batch if all outputs have rank 2 or more, share their first two sizes, and one has
rank 3 or more, or the batch is 1; else on axis 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Align",
    "Arrays",
    "Orders",
    "align_as_given",
    "apply_orders",
    "assign_rows",
    "make_aligner",
    "match_outputs",
    "match_rows",
    "row_axis",
]

Arrays = Mapping[str, np.ndarray]
# (what is expected, what was found) -> what was found, its rows put beside those expected.
Align = Callable[[Arrays, Arrays], Arrays]
# Which row of the candidate is row i of the reference, one order a batch index.
Orders = list[np.ndarray]

_SAME_NAMES: Mapping[str, str] = MappingProxyType({})

# Squared distance of two elements of which one is not finite: of values ten thousand deviations apart. Chosen.
_NEVER = 1e8


def row_axis(shapes: Sequence[tuple[int, ...]]) -> int | None:
    """The axis of the rows that outputs of these shapes share; None where they share none."""
    if not shapes or any(not shape for shape in shapes):
        return None
    behind = all(len(shape) > 1 for shape in shapes) and len({shape[:2] for shape in shapes}) == 1
    if behind and (any(len(shape) > 2 for shape in shapes) or shapes[0][0] == 1):
        return 1
    return 0 if len({shape[0] for shape in shapes}) == 1 else None


def align_as_given(expected: Arrays, found: Arrays) -> Arrays:
    """The alignment of outputs whose rows stand where they belong: `found`."""
    del expected
    return found


def make_aligner(names: Sequence[str], called: Mapping[str, str] = _SAME_NAMES) -> Align:
    """The alignment that matches the rows of `names`; `called` maps their names to those on the other side."""
    if not names:
        return align_as_given
    return lambda expected, found: match_outputs(names, expected, found, called)


def match_outputs(
    names: Sequence[str], reference: Arrays, candidate: Arrays, called: Mapping[str, str] = _SAME_NAMES
) -> dict[str, np.ndarray]:
    """`candidate` with the rows of the outputs `names` in the reference's order; the others as they are.

    Outputs that either side lacks, or has in another shape, do not take part: comparing them says what is wrong.
    `called` gives the candidate's names where they are not the reference's.

    Raises:
        ParityError: outputs that both sides have share no axis of rows.
    """
    pairs = [(name, called.get(name, name)) for name in names]
    pairs = [(name, other) for name, other in pairs if name in reference and other in candidate]
    both = [(name, other) for name, other in pairs if np.shape(reference[name]) == np.shape(candidate[other])]
    if not both:
        return dict(candidate)
    orders = match_rows([reference[name] for name, _ in both], [candidate[other] for _, other in both])
    if orders is None:
        told = ", ".join(f"{name} {list(np.shape(reference[name]))}" for name, _ in both)
        raise ParityError(
            f"the outputs to match share no rows: {told}",
            fix="match outputs with the same number of rows: --match boxes,logits",
        )
    axis = row_axis([np.shape(reference[name]) for name, _ in both]) or 0
    return {**candidate, **{other: apply_orders(np.asarray(candidate[other]), orders, axis) for _, other in both}}


def match_rows(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> Orders | None:
    """The order of the candidate's rows, for each batch index; None where the arrays share no rows.

    The arrays are pairwise of one shape, and all share one axis of rows.
    """
    axis = row_axis([array.shape for array in reference])
    if axis is None:
        return None
    batch = reference[0].shape[0] if axis else 1
    costs = [np.zeros((reference[0].shape[axis],) * 2) for _ in range(batch)]
    for mine, its in zip(reference, candidate, strict=True):
        scale = _standard_deviation(mine)
        costs = [
            cost + _row_distances(_flatten_rows(mine, axis, index), _flatten_rows(its, axis, index), scale)
            for index, cost in enumerate(costs)
        ]
    return [assign_rows(cost) for cost in costs]


def assign_rows(costs: np.ndarray) -> np.ndarray:
    """The column of each row, every column once, for the least sum of `costs`: int64 (rows,), of float64 (rows, rows)."""
    nearest: np.ndarray = costs.argmin(1)
    if np.unique(nearest).size == nearest.size:
        return nearest  # each row has its least, so that no sum is less
    from scipy.optimize import linear_sum_assignment  # a third of a second to import, and not always asked

    return np.asarray(linear_sum_assignment(costs)[1])


def apply_orders(array: np.ndarray, orders: Orders, axis: int) -> np.ndarray:
    """The array with its rows in those orders, a copy.

    Args:
        array: Any dtype; (rows, ...) with `axis` 0, else (batch, rows, ...).
        orders: One permutation of the rows, int64 (rows,), for each element of the batch.
        axis: Which axis the rows are.
    """
    if not axis:
        return array[orders[0]]
    return np.stack([each[order] for each, order in zip(array, orders, strict=True)])


def _flatten_rows(array: np.ndarray, axis: int, index: int) -> np.ndarray:
    """(rows, elements of a row)."""
    chosen = array[index] if axis else array
    return np.asarray(chosen).reshape(chosen.shape[0], -1)


def _standard_deviation(array: np.ndarray) -> float:
    """What distances of an output are measured in: 1 for what is not floating point, or is constant."""
    if array.dtype.kind in "iub" or array.size == 0:
        return 1.0
    values = np.asarray(array, np.float64)
    spread = float(np.std(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    return spread or 1.0


def _row_distances(reference: np.ndarray, candidate: np.ndarray, scale: float) -> np.ndarray:
    """Mean squared distance of every row of `reference` to every row of `candidate`, float64; an element at a time.

    Not by |a|^2 + |b|^2 - 2ab, whose cancellation would leave 1e-16 of the squared values where rows agree.
    """
    total = np.zeros((len(reference), len(candidate)))
    exact = reference.dtype.kind in "iub"
    for left, right in zip(reference.T, candidate.T, strict=True):
        if exact:
            total += left[:, None] != right[None, :]
            continue
        a, b = (np.asarray(each, np.float64) for each in (left, right))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.square((a[:, None] - b[None, :]) / scale)
        same = (a[:, None] == b[None, :]) | (np.isnan(a)[:, None] & np.isnan(b)[None, :])
        apart[same] = 0.0
        total += np.where(np.isfinite(apart), np.minimum(apart, _NEVER), _NEVER)
    total /= max(1, reference.shape[1])
    return total
