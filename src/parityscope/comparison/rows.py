"""Rows of order-free outputs (what TopK and non-maximum suppression give) paired before they are compared.

Outputs that belong together (logits and boxes, say) share their rows: row i of one is the same object as row i of the
other. The rows of the candidate are put into the order in which they are, all outputs together, nearest to the
reference's: the assignment with the least sum of

    sum over outputs of  mean over elements of ((reference - candidate) / deviation of the reference's output)^2

found exactly (SciPy's, by shortest augmenting paths: Crouse, IEEE TAES 52, 2016). Every row is used once, so that an object
that the candidate lacks stays an error. Matching can only lower an error: what is left is a lower bound of what differs. For
integers and booleans an element counts 0 or 1. Elements that are not finite must be the same on both sides; each that is not
counts as far as any two can be.

Where there are as many rows as the values decide (what NonMaxSuppression, NonZero, Compress or Unique keep), one side may have
more than the other. Then as many as can be are paired so, and in the place of a row that one side lacks stand zeros (of
integers: -1), as engines fill outputs of a fixed length: an error of the row's own size. Rows of both that are equally many
stay as they are.

What is stored in a coarser float than the reference's is taken as the number nearest to the reference's that is stored so: the
rounding of whoever kept it is no error of what was run.

Where the rows lie: on axis 1 behind a batch if all outputs have rank 2 or more, share their first two sizes, and one has
rank 3 or more, or the batch is 1; else on axis 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from parityscope.records import Policy

Arrays = Mapping[str, np.ndarray]
# (what is expected, what was found) -> both, each row beside its own.
Align = Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]
# Which row of the candidate is row i of the reference, one order a batch index.
Orders = list[np.ndarray]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_SAME_NAMES: Mapping[str, str] = MappingProxyType({})

# Squared distance of two elements of which one is not finite: of values ten thousand deviations apart. Chosen.
_NEVER = 1e8
_MOST_PAIRS = (
    1 << 21
)  # of rows; chosen: an assignment of as many takes a second. Beyond, rows are paired by their place.


def row_axis(shapes: Sequence[tuple[int, ...]]) -> int | None:
    """The axis of the rows that outputs of these shapes share; None where they share none."""
    if not shapes or any(not shape for shape in shapes):
        return None
    behind = all(len(shape) > 1 for shape in shapes) and len({shape[:2] for shape in shapes}) == 1
    if behind and (any(len(shape) > 2 for shape in shapes) or shapes[0][0] == 1):
        return 1
    return 0 if len({shape[0] for shape in shapes}) == 1 else None


def align_as_given(expected: Arrays, found: Arrays) -> tuple[Arrays, Arrays]:
    """The alignment of outputs whose rows stand where they belong."""
    return expected, _undo_storage(expected, found, _SAME_NAMES)


def is_coarser_float(stored: np.dtype[Any], computed: np.dtype[Any]) -> bool:
    """Whether a float type holds less than another: what was computed in that one was rounded to be stored in this."""
    return stored.itemsize < computed.itemsize and computed.kind == "f" and (stored.kind == "f" or stored == _BFLOAT16)


def _undo_storage(expected: Arrays, found: Arrays, called: Mapping[str, str]) -> Arrays:
    """What was found, where it is stored in a coarser float: of all numbers that are stored so the nearest to the expected."""
    changed: dict[str, np.ndarray] = {}
    for name, right in expected.items():
        other = called.get(name, name)
        stored = found.get(other)
        if stored is None or stored.dtype == right.dtype or stored.shape != right.shape:
            continue
        if is_coarser_float(stored.dtype, right.dtype):
            with np.errstate(all="ignore"):
                given, infinite = stored.astype(right.dtype), np.asarray(np.inf, stored.dtype)
                below, above = (
                    (given + np.nextafter(stored, end).astype(right.dtype)) / 2 for end in (-infinite, infinite)
                )
                known = np.isfinite(right) & np.isfinite(given)
                changed[other] = np.where(known, np.clip(right, below, above), given)
    return {**found, **changed} if changed else found


def make_aligner(
    policy: Policy | None, called: Mapping[str, str] = _SAME_NAMES, *, without_order: bool = False
) -> Align:
    """The alignment of the rows that a policy says are to be matched, or that values count.

    `called` maps the names of outputs to those on the other side. `without_order`: counted rows that a sort gives are paired
    where they are equally many, too.
    """
    if policy is None or not (policy.matched or policy.counted):
        return (
            align_as_given if not called else lambda expected, found: (expected, _undo_storage(expected, found, called))
        )

    counted = {one.name: one.axes for one in policy.counted}
    axes = dict.fromkeys(policy.matched, ()) | counted
    paired = {one.name for one in policy.counted if one.sorted and without_order} - set(policy.matched)

    def align(expected: Arrays, found: Arrays) -> tuple[Arrays, Arrays]:
        matched = match_outputs(policy.matched, expected, found, called) if policy.matched else found
        filled, given = fill_rows(axes, expected, matched, called, paired=paired)
        return filled, _undo_storage(filled, given, called)

    return align


def fill_rows(
    axes: Mapping[str, tuple[int, ...]],
    reference: Arrays,
    candidate: Arrays,
    called: Mapping[str, str] = _SAME_NAMES,
    *,
    paired: Collection[str] = (),
) -> tuple[Arrays, Arrays]:
    """Both sides with as many rows in the outputs of `axes`: those that one lacks are filled, partners stand beside each other.

    `axes` are those that rows may lie along; where they are not known, the shape says it. Where the two have equally many, only
    rows of the outputs `paired` are moved. Outputs with the same two numbers of rows belong together. Others, and those whose
    shapes differ elsewhere, are as they are.
    """
    groups: dict[tuple[int, int], list[tuple[str, str, int]]] = {}
    for name, possible in axes.items():
        other = called.get(name, name)
        if name not in reference or other not in candidate:
            continue
        mine, its = reference[name].shape, candidate[other].shape
        axis = axis_of_rows(possible or (row_axis([mine]),), mine, its)
        if axis is not None and (mine != its or name in paired):
            groups.setdefault((mine[axis], its[axis]), []).append((name, other, axis))
    filled, given = dict(reference), dict(candidate)
    for (_, theirs), members in groups.items():
        partners = pair_rows([(reference[name], candidate[other], axis) for name, other, axis in members])
        left = np.setdiff1d(np.arange(theirs), partners)
        places = np.concatenate([partners, left])
        for name, other, axis in members:
            filled[name] = _take_rows(reference[name], np.arange(len(places)), axis)
            given[other] = _take_rows(candidate[other], places, axis)
    return (filled, given) if groups else (reference, candidate)


def fill_rows_apart(reference: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays with as many rows, where their shapes differ along one axis alone; else as they are."""
    axis = lone_axis_apart(reference.shape, candidate.shape)
    if axis is None:
        return reference, candidate
    expected, found = fill_rows({"": (axis,)}, {"": reference}, {"": candidate})
    return expected[""], found[""]


def rows_beside(reference: np.ndarray, array: np.ndarray) -> np.ndarray:
    """What lies beside each row of the reference, in its shape: filled where nothing does; else the array as it is."""
    axis = lone_axis_apart(reference.shape, array.shape)
    if axis is None:
        return array
    _, beside = fill_rows_apart(reference, array)
    return np.asarray(np.take(beside, np.arange(reference.shape[axis]), axis))


def axis_of_rows(axes: Sequence[int | None], mine: tuple[int, ...], its: tuple[int, ...]) -> int | None:
    """Which of the axes that rows may lie along they do: that along which alone two shapes differ, the first of equal ones."""
    axis = axes[0] if mine == its else lone_axis_apart(mine, its)
    return axis if axis is not None and axis in axes and axis < len(mine) else None


def lone_axis_apart(mine: tuple[int, ...], its: tuple[int, ...]) -> int | None:
    """The axis along which alone two shapes differ; None where they are the same, or differ otherwise."""
    if len(mine) != len(its):
        return None
    apart = [axis for axis, (one, other) in enumerate(zip(mine, its, strict=True)) if one != other]
    return apart[0] if len(apart) == 1 else None


def pair_rows(arrays: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> np.ndarray:
    """The candidate's row beside each of the reference's, int64 (reference's rows,): where there is none, as many as it has.

    `arrays` are the reference's, the candidate's and their axis of rows, of outputs that belong together.
    """
    ours, theirs = (one.shape[arrays[0][2]] for one in arrays[0][:2])
    partners, both = np.full(ours, theirs), min(ours, theirs)
    if ours * theirs > _MOST_PAIRS or not both:
        partners[:both] = np.arange(both)
        return partners
    costs = np.zeros((ours, theirs))
    for mine, its, axis in arrays:
        left, right = (flatten_rows(each, axis) for each in (mine, its))
        costs += _row_distances(left, right, _standard_deviation(mine))
    if ours <= theirs:
        return assign_rows(costs)
    partners[assign_rows(costs.T)] = np.arange(theirs)
    return partners


def flatten_rows(array: np.ndarray, axis: int) -> np.ndarray:
    """(rows, elements of a row)."""
    rows = np.moveaxis(array, axis, 0)
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def _take_rows(array: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
    """The rows at these places; filled where a place is behind the last."""
    shape = list(array.shape)
    shape[axis] = 1
    filling = np.full(shape, -1 if array.dtype.kind == "i" else 0).astype(array.dtype)
    filled = np.concatenate([array, filling], axis)
    return np.asarray(np.take(filled, np.minimum(places, array.shape[axis]), axis))


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
        for index, cost in enumerate(costs):
            left, right = (flatten_rows(one[index] if axis else one, 0) for one in (mine, its))
            costs[index] = cost + _row_distances(left, right, scale)
    return [assign_rows(cost) for cost in costs]


def assign_rows(costs: np.ndarray) -> np.ndarray:
    """The column of each row, none twice, for the least sum of `costs`: int64 (rows,), of float64 (rows, as many or more)."""
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
    if not exact and np.isfinite(reference).all() and np.isfinite(candidate).all():
        from scipy.spatial.distance import cdist  # comes with what assigns rows

        mine, its = (np.asarray(each, np.float64) / scale for each in (reference, candidate))
        return np.asarray(np.minimum(cdist(mine, its, "sqeuclidean") / max(1, mine.shape[1]), _NEVER))
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
