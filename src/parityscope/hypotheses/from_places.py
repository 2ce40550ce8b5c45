"""The result changed in one place (`places`) alone: nothing, a constant or something stale there, or any change of the whole."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import fit_line, round_to_nice, slope_through_origin
from parityscope.hypotheses.from_before import before_edits, mixed_before_edits
from parityscope.hypotheses.from_values import elementwise_edits, fitted_edits
from parityscope.hypotheses.places import IndexPlace, find_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.hypotheses.edits import Behind
    from parityscope.hypotheses.stretch import ComputedStretch

_NOTHING = 1e-3  # of the typical squared error of what is wrong: less is the rounding of what is right; chosen
_MOST_WRONG = 0.98  # of the elements: then it is no place; chosen
_MOST_TABLED = 1 << 16  # elements of a table that a copy of the model is given; chosen
_ALIKE = 1e-6  # relative: elements that are one constant


def _places_of(stretch: ComputedStretch) -> list[IndexPlace]:
    """Where the result differs by more than rounding, on the first sample; none where that is everywhere or nowhere special."""
    errors = stretch.errors[0]
    known = stretch.fitted_on
    if not stretch.same_shape or not errors.ndim or not known.any():
        return []
    seen = errors[known]
    total = float(seen.sum())
    if not total:
        return []
    typical = float(np.square(seen).sum()) / total
    wrong = errors > max(_NOTHING * typical, stretch.floor)
    if np.count_nonzero(wrong[known]) > _MOST_WRONG * seen.size:
        return []
    place = find_place(wrong, known)
    return place.with_less if place is not None else []


def place_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """In the place where the result is wrong: one number, the result scaled or shifted, or NaN."""
    for place in _places_of(stretch):
        yield from _edits_in_place(stretch, place)


def _edits_in_place(stretch: ComputedStretch, place: IndexPlace) -> Iterator[StretchEdit]:
    there = np.broadcast_to(place.mask(stretch.found[0].shape), stretch.found[0].shape) & stretch.fitted_on
    x, y = stretch.replayed[0][there], stretch.found[0][there]
    if not y.size:
        return
    if np.isnan(y).all():
        yield _edit_at(place, "the result is NaN", 4.0, lambda array: np.full_like(array, np.nan))
        return
    middle = float(np.median(y))
    if (y == middle).all() or np.ptp(y) <= _ALIKE * max(abs(middle), stretch.size):
        yield line_edit_at(stretch, place, 0.0, middle)
        return
    finite = np.isfinite(x) & np.isfinite(y)
    if np.count_nonzero(finite) < 2:
        return
    x, y = x[finite], y[finite]
    yield line_edit_at(stretch, place, slope_through_origin(x, y), 0.0)
    yield line_edit_at(stretch, place, 1.0, float(np.median(y - x)))
    gain, offset = fit_line(x, y)
    if round_to_nice(gain)[0] != 1 and round_to_nice(offset)[0]:  # else it was said
        yield line_edit_at(stretch, place, gain, offset)


def changed_place_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """In the place where the result is wrong, whatever may be wrong with a whole result."""
    for place in _places_of(stretch):
        inside = stretch.fitted_among(np.broadcast_to(place.mask(stretch.found[0].shape), stretch.found[0].shape))
        fitted = (before_edits(inside), mixed_before_edits(inside), fitted_edits(inside))
        for edit in itertools.chain(*fitted, elementwise_edits(stretch)):
            yield edit_at_place(place, edit)


def edit_at_place(place: IndexPlace, edit: StretchEdit) -> StretchEdit:
    """An edit whose result counts in a place alone."""

    def whole(one: ComputedStretch, sample: int) -> np.ndarray:
        base = one.replayed[sample]
        return np.where(place.mask(base.shape), one.run(sample, edit), base)

    return StretchEdit(
        words=f"{edit.words.removesuffix(' everywhere')}, only at {place.words}",
        bits=edit.bits + place.bits,
        whole=whole,
        numbers=edit.numbers,
    )


def _edit_at(place: IndexPlace, words: str, bits: float, of: Callable[[np.ndarray], np.ndarray]) -> StretchEdit:
    return edit_at_place(place, StretchEdit(words=words, bits=bits, whole=lambda one, sample: of(one.replayed[sample])))


def line_edit_at(stretch: ComputedStretch, place: IndexPlace, factor: float, offset: float) -> StretchEdit:
    """The result times a factor plus an offset in a place, in the words of what that is.

    Where a table says the same on every sample, also as operators behind it.
    """
    (factor, gain_bits), (offset, shift_bits) = round_to_nice(factor), round_to_nice(offset)
    if factor == 0:
        words, bits = f"the result is {offset:.6g}", shift_bits
    elif not offset:
        words, bits = f"the result scaled by {factor:.6g}", gain_bits
    elif factor == 1:
        words, bits = f"{offset:.6g} added to the result", shift_bits
    else:
        words, bits = f"the result times {factor:.6g} plus {offset:.6g}", 1 + gain_bits + shift_bits
    made = _edit_at(place, words, 4 + bits, lambda array: factor * array + offset)
    if factor == 0:  # not times the result, which may be infinite
        made = _edit_at(place, words, 4 + bits, lambda array: np.full_like(array, offset))
    mask, *others = (place.mask(shape) for shape in {array.shape for array in stretch.base})
    behind: Behind = ()
    alike = all(np.array_equal(mask, other) for other in others)
    if alike and mask.size <= _MOST_TABLED and math.isfinite(offset):
        behind = ((("Mul", (np.where(mask, factor, 1.0),)),) if factor != 1 else ()) + (
            (("Add", (np.where(mask, offset, 0.0),)),) if offset else ()
        )
    numbers = {"factor": factor} if factor != 1 and not offset else {"offset": offset}
    return replace(made, behind=behind, numbers=numbers if factor != 0 else {"value": offset})
