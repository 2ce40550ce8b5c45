"""The result changed by index of an axis: single indices scaled or shifted, each by its own, in another order, or copied."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.comparison.rows import assign_rows
from parityscope.hypotheses.edits import StretchEdit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.hypotheses.stretch import ComputedStretch

    Get = Callable[["ComputedStretch", int], np.ndarray]

from parityscope.hypotheses.fitting import AS_CHOSEN, FITTED_BITS, fit_line, round_to_nice

_MOST_INDICES = 1 << 16  # of an axis
_MOST_ASSIGNED = 1024  # indices, for an assignment, which is cubic
_LINE = 4  # elements that a line needs, whose two numbers fit any two; chosen
_COLUMNS = 2000  # elements of each index that an assignment looks at; chosen


def edits_by_index(stretch: ComputedStretch, chosen: np.ndarray) -> Iterator[StretchEdit]:
    """A factor or an offset of its own for each wrong index of each axis, indices exchanged or copied."""
    known, found, errors = (
        side[0] if chosen.all() else np.where(chosen, side[0], 0.0)
        for side in (stretch.replayed, stretch.found, stretch.errors)
    )
    for axis, length in enumerate(chosen.shape):
        if 1 < length <= _MOST_INDICES and all(array.shape[axis : axis + 1] == (length,) for array in stretch.replayed):
            yield from _edits_along_axis(stretch, chosen, (known, found, errors), axis)


def _edits_along_axis(
    stretch: ComputedStretch, chosen: np.ndarray, sides: tuple[np.ndarray, np.ndarray, np.ndarray], axis: int
) -> Iterator[StretchEdit]:
    """Edits by index of one axis; of the sides (known, found, squared errors) what is not chosen is zero."""
    known, found, squared_errors = sides
    length = chosen.shape[axis]
    over = tuple(other for other in range(chosen.ndim) if other != axis)
    view = tuple(length if other == axis else 1 for other in range(chosen.ndim))
    squares, products = _sum_products(known, known, axis), _sum_products(known, found, axis)
    count = np.maximum(chosen.sum(over), 1)
    gains = np.where(squares > 0, products / np.where(squares > 0, squares, 1), 1.0)
    offsets = (found.sum(over) - known.sum(over)) / count
    errors = squared_errors.sum(over)
    wrong = np.flatnonzero(errors > 1e-6 * errors.sum() + 10 * stretch.floor * count)
    if wrong.size:
        yield from _edit_at_indices(axis, length, wrong, gains, offsets, view)
    if wrong.size == 1 and np.count_nonzero(np.take(chosen, wrong[0], axis)) > _LINE:
        yield from _line_edit_at(stretch, chosen, axis, int(wrong[0]), view)
    if length <= _MOST_ASSIGNED:
        yield from _move_indices_edits(np.moveaxis(known, axis, 0), np.moveaxis(found, axis, 0), axis)


def _sum_products(one: np.ndarray, other: np.ndarray, axis: int) -> np.ndarray:
    """The sums of products by index of an axis, without an array of the products."""
    every = list(range(one.ndim))
    return np.asarray(np.einsum(one, every, other, every, [axis]))


def _edit_at_indices(
    axis: int, length: int, wrong: np.ndarray, gains: np.ndarray, offsets: np.ndarray, view: tuple[int, ...]
) -> Iterator[StretchEdit]:
    few = wrong.size <= max(1, length // 2)
    kept = np.isin(np.arange(length), wrong)
    said = ", ".join(map(str, wrong[:6])) + (", ..." if wrong.size > 6 else "")
    where = f"index {said} of axis {axis}" if few else f"each index of axis {axis}"
    a_run = wrong.size > 1 and bool((np.diff(wrong) == 1).all())
    place = (2 * math.log2(length) if a_run else min(length, wrong.size * math.log2(length))) if few else 0.0
    own = place + FITTED_BITS * wrong.size
    for word, values, neutral, add in (("factors", gains, 1.0, False), ("offsets", offsets, 0.0, True)):
        table = np.where(kept, values, neutral).reshape(view)
        shown = ", ".join(f"{value:.4g}" for value in values[wrong[:4]])
        yield StretchEdit(
            words=f"{where} {'shifted by' if add else 'scaled by'} {word} of their own ({shown})",
            bits=6 + own,
            whole=lambda one, sample, t=table, a=add: one.replayed[sample] + t if a else one.replayed[sample] * t,
            behind=(("Add" if add else "Mul", (table,)),),
        )


def _line_edit_at(
    stretch: ComputedStretch, chosen: np.ndarray, axis: int, index: int, view: tuple[int, ...]
) -> Iterator[StretchEdit]:
    """One index scaled and shifted: what comes of its weights scaled, and its bias not."""
    length = chosen.shape[axis]
    part = np.take(chosen, index, axis)
    x, y = (np.take(side[0], index, axis)[part] for side in (stretch.replayed, stretch.found))
    gain, gain_bits = round_to_nice(fit_line(x, y)[0])
    offset, offset_bits = round_to_nice(float((y - gain * x).mean()))
    where, said = f"index {index} of axis {axis}", f"times {gain:.6g} plus {offset:.6g}"
    for name in stretch.steps[-1].inputs:
        bias = stretch.context.constants.get(name)
        if bias is not None and bias.shape == (length,) and bias.dtype.kind == "f" and gain != 1:
            stays = (1 - gain) * float(bias[index])
            if abs(offset - stays) <= AS_CHOSEN * stretch.size:
                offset, offset_bits, said = stays, 0.0, f"scaled by {gain:.6g} before {name!r} is added"
    wrong = np.arange(length) == index
    factors, offsets = (np.where(wrong, *pair).reshape(view) for pair in ((gain, 1.0), (offset, 0.0)))
    yield StretchEdit(
        words=f"{where} {said}",
        bits=6 + math.log2(length) + gain_bits + offset_bits,
        whole=lambda one, sample: one.replayed[sample] * factors + offsets,
        behind=(("Mul", (factors,)), ("Add", (offsets,))),
        numbers={"factor": gain, "offset": offset},
    )


def _move_indices_edits(known: np.ndarray, found: np.ndarray, axis: int) -> Iterator[StretchEdit]:
    """Indices in another order, or copies of others: by least squared distance (R. Jonker, A. Volgenant, Computing 38, 1987)."""
    length = known.shape[0]
    rows, others = known.reshape(length, -1), found.reshape(length, -1)
    if rows.shape[1] > 2 * _COLUMNS:
        picks = np.random.default_rng(2).choice(rows.shape[1], _COLUMNS, replace=False)
        rows, others = rows[:, picks], others[:, picks]
    distance = np.square(others).sum(1)[:, None] - 2 * others @ rows.T + np.square(rows).sum(1)[None]
    stays = 1e-9 * np.abs(np.trace(distance)) / length * np.eye(length)
    order = assign_rows(distance - stays)
    moved = np.flatnonzero(order != np.arange(length))
    if moved.size:
        shown = ", ".join(f"{i} has {order[i]}" for i in moved[:4])
        yield StretchEdit(
            words=f"axis {axis} in another order ({moved.size} indices; {shown})",
            bits=6 + moved.size * math.log2(length),
            whole=lambda one, sample: np.take(one.replayed[sample], order, axis),
        )
    nearest = distance.argmin(1)
    own = np.diag(distance)
    copied = np.flatnonzero(distance[np.arange(length), nearest] < 0.5 * own - 1e-12)
    if copied.size:
        source = np.where(np.isin(np.arange(length), copied), nearest, np.arange(length))
        shown = ", ".join(f"{i} is {source[i]}" for i in copied[:4])
        yield StretchEdit(
            words=f"{copied.size} indices of axis {axis} are copies of others ({shown})",
            bits=8 + 2 * copied.size * math.log2(length),
            whole=lambda one, sample: np.take(one.replayed[sample], source, axis),
        )
