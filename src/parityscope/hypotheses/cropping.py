"""A stretch on a part of its elements: among millions of them a search has the time for few edits, among thousands for all.

A part is a run of indices of an axis of the result, and of what is read along that axis. Whether the stretch can be computed on
it alone is not asked of its operators but tried: what it gives there must be what it gave before, but for borders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.measures import as_float64
from parityscope.hypotheses.stretch import ComputedStretch
from parityscope.light_dataclasses import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.hypotheses.stretch import StretchContext

_FEWEST = 16  # indices of an axis: of fewer most are border; chosen
_MULTIPLE = 4  # runs begin and end at multiples of it, so that an axis half or twice as long can be cut as well; chosen
_OTHERWISE = 0.25  # of the elements, at most, that come out otherwise at the borders; chosen
_CLOSE = 1e-5  # of the result's size: what another order of summation makes


def crop_stretch(stretch: ComputedStretch, most: int) -> StretchContext | None:
    """What is known around a stretch, on about `most` elements of its result, where its error is largest; None where none can be.

    At borders, where it comes out otherwise on a part, the candidate is said to have given what the stretch gives there.
    """
    context, base = stretch.context, list(stretch.base)
    shape = base[0].shape
    if not stretch.same_shape or any(array.shape != shape for array in base):
        return None
    errors = stretch.errors[0]
    for axis in sorted(range(len(shape)), key=lambda one: -shape[one]):
        length, size = base[0].shape[axis], base[0].size
        count = max(_FEWEST, int(length * most / size) // _MULTIPLE * _MULTIPLE)
        if size <= most or 2 * count > length:
            continue
        start = _worst_run(errors, axis, count)
        cut = _cut_context(context, len(shape) - axis, length, start, count)
        tried = _compute_part(cut, stretch, [np.take(one, range(start, start + count), axis) for one in base])
        if tried is not None:
            context, base = tried
            errors = np.take(errors, range(start, start + count), axis)
    return context if base[0].size < stretch.base[0].size else None


def _worst_run(errors: np.ndarray, axis: int, count: int) -> int:
    """Where as many indices begin that hold most of the error, at a multiple."""
    along = errors.sum(tuple(other for other in range(errors.ndim) if other != axis))
    held = np.cumsum(np.append(0.0, along))
    return int((held[count:] - held[:-count])[::_MULTIPLE].argmax()) * _MULTIPLE


def _cut_context(context: StretchContext, from_last: int, length: int, start: int, count: int) -> StretchContext:
    """The context with all arrays cut along the axis `from_last` (1 is the last), which in the result has that length."""

    def cut(array: np.ndarray) -> np.ndarray:
        axis = array.ndim - from_last
        if axis < 0 or array.shape[axis] <= 1:
            return array
        own = array.shape[axis]
        begin, end = start * own, (start + count) * own
        if (own % length and length % own) or begin % length or end % length:
            return array
        return np.take(array, range(begin // length, end // length), axis)

    return replace(
        context,
        constants={name: cut(array) for name, array in context.constants.items()},
        worlds=[{name: cut(array) for name, array in world.items()} for world in context.worlds],
        candidate=[cut(array) for array in context.candidate],
    )


def _compute_part(
    context: StretchContext, whole: ComputedStretch, wanted: Sequence[np.ndarray]
) -> tuple[StretchContext, list[np.ndarray]] | None:
    """A cut context whose stretch gives what is wanted, and what it gives; None where it does not."""
    try:
        part = ComputedStretch(context=context, arithmetic=whole.arithmetic, sessions=whole.sessions)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a part does to an operator, the whole is there
        return None
    if any(one.shape != other.shape for one, other in zip(part.base, wanted, strict=True)):
        return None
    candidate = []
    for given, one, found in zip(part.base, wanted, context.candidate, strict=True):
        here, there = as_float64(given), as_float64(one)
        with np.errstate(all="ignore"):
            same = (np.abs(here - there) <= _CLOSE * whole.size) | (here == there) | (np.isnan(here) & np.isnan(there))
        if np.count_nonzero(~same) > _OTHERWISE * same.size:
            return None
        candidate.append(np.where(same, found, given))
    return replace(context, candidate=candidate), list(part.base)
