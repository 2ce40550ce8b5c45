"""Edits with numbers to be fitted: a result, one index of it, an input or an attribute, scaled, shifted or cut off.

A first number is what the adjoints say: for a change of amount t along a direction the response is t times that direction's, so
that the best t and what it explains follow from two products. Exact evaluations then correct it (Gauss-Newton), and where one
number comes near, a family of more numbers that contains it is fitted from there: both bounds, a scale with an offset.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import round_to_nice
from parityscope.hypotheses.from_inputs import edit_of_input
from parityscope.hypotheses.from_places import line_edit_at
from parityscope.hypotheses.from_pointwise import edit_with_operator, operators_with_numbers, quantiles_of, starts_of
from parityscope.hypotheses.numbered import (
    change_result,
    cut_above,
    cut_at_both,
    cut_below,
    cut_input,
    real_attributes,
    result_on_line,
    scale_input,
    scale_result,
    set_real_attribute,
    shift_input,
    shift_result,
    typical_size,
)
from parityscope.hypotheses.schemas import input_label, schema_of
from parityscope.light_dataclasses import dataclass
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.hypotheses.from_outputs.sites import EditSite
    from parityscope.hypotheses.from_pointwise import PointwiseOperator
    from parityscope.hypotheses.places import IndexPlace
    from parityscope.hypotheses.stretch import ComputedStretch

PLACES = "places"  # the kind of families that are about a part of a result
CHANGED_PLACES = "changed places"  # and of edits of any other kind there
MOVED = "moved"
OF_PARTS = frozenset({PLACES, CHANGED_PLACES, MOVED})
_POINTWISE = with_trait("pointwise")
_QUANTILES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
_PARTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # quantiles of a constant's sizes beyond or below which it may be cut off
_OF_INPUT = 6.0  # bits of saying which constant
_FEW = 16  # elements: a constant of fewer is not cut off
_TENS = (10.0, 0.1, 100.0, 0.01, 1000.0, 0.001)  # per cent, milli
_SCALES = tuple(factor - 1 for factor in (2.0, 0.5, 0.0, -1.0, *_TENS, 255.0, 1 / 255, 128.0, 1 / 128))
_SHIFTS = (1.0, -1.0, 0.5, -0.5, 128.0, -128.0)
_TAPS = (-1, 0, 1)  # of a filter along an axis
# Along an axis: what changes nothing, what smoothing makes, halves of two neighbours, a mean. A fit starts from each.
_FILTERS = ((0.0, 1.0, 0.0), (0.25, 0.5, 0.25), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3))
_LONG = 8  # an axis of more is one of places
_BOUND_STEP = 2e-3  # of the span: two bounds so far apart cut off nearly the same elements; chosen
_SMALL_STEP = 1e-2  # relative: what a direction is measured with where it is not exact; chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EditFamily:
    """`make(t)` is the edit of amount t, which for t = 0 changes nothing. `step` is an amount that is small for it.

    With `grid` amounts (each as many as `make` takes) are no multiples of a direction: all are looked at. With several numbers
    `make` takes as many, `step` is that of each. `wider` is a family of more numbers, and where it starts from an amount of this
    one; None where there is none. `place` is the part of a result that it is about, `elsewhere` the same about another part; None
    where it is about no part. `anywhere` says that its edits have a meaning at every site, `count` how many numbers `make`
    takes.
    """

    kind: str
    make: Callable[..., StretchEdit]
    step: float
    grid: tuple[float | tuple[float, ...], ...] = ()
    wider: Callable[[float], tuple[EditFamily, tuple[float, ...]]] | None = None
    place: IndexPlace | None = None
    elsewhere: Callable[[IndexPlace], EditFamily] | None = None
    anywhere: bool = False
    count: int = 1

    @property
    def starts(self) -> list[tuple[float, ...]]:
        """Where a search of its amounts begins."""
        return [one if isinstance(one, tuple) else (one,) for one in self.grid or (self.step,)]


def families_of(site: EditSite) -> Iterator[EditFamily]:
    """Of a site's result as a whole, of its inputs and its attributes."""
    array = site.result
    if array.dtype.kind == "f" and array.size:
        size = typical_size(array)
        line = EditFamily(
            kind="result scaled and shifted",
            make=result_on_line,
            anywhere=True,
            step=_SMALL_STEP * min(size, 1.0),
        )
        # A large change is not what a derivative says it is: numbers that people choose are begun with as well.
        for grid in ((), _SCALES):
            yield EditFamily(
                kind="result scaled",
                make=lambda by: scale_result(1 + by),
                anywhere=True,
                step=_SMALL_STEP,
                grid=grid,
                wider=lambda by: (line, (1 + by, 0.0)),
            )
        for grid in ((), _SHIFTS):
            yield EditFamily(
                kind="result shifted",
                make=shift_result,
                anywhere=True,
                step=_SMALL_STEP * size,
                grid=grid,
                wider=lambda by: (line, (1.0, by)),
            )
        if (array < 0).any() and (array > 0).any():
            yield EditFamily(kind="negative part scaled", make=_leak_negatives, anywhere=True, step=_SMALL_STEP)
    if not site.whole_step:
        return
    (step,) = site.stretch.steps
    node = next(one for one in site.stretch.context.nodes if tuple(one.output) == step.outputs)
    schema = schema_of(node, site.stretch.context.opsets)
    for index, name in enumerate(node.input):
        held = site.stretch.context.constants.get(name) if name else None
        if held is None or held.dtype.kind != "f" or not held.size or site.reference.program.steps_of.get(name):
            continue
        label = input_label(node, index, schema, constant=True)
        yield EditFamily(
            kind="input scaled",
            make=lambda by, index=index, label=label: scale_input(0, index, label, 1 + by, _OF_INPUT),
            step=_SMALL_STEP,
        )
        yield EditFamily(
            kind="input shifted",
            make=functools.partial(shift_input, 0, index, label, least=_OF_INPUT),
            step=_SMALL_STEP * typical_size(held),
        )
        sizes = np.abs(held[np.isfinite(held)])
        if held.size > _FEW and sizes.any():
            grid = tuple(dict.fromkeys(quantiles_of(sizes, _PARTS)))
            for small in (False, True):
                step_by = _BOUND_STEP * float(sizes.max())
                yield EditFamily(
                    kind="input cut off",
                    make=functools.partial(cut_input, 0, index, label, small=small),
                    step=step_by,
                    grid=grid,
                )
    for name, now in real_attributes(site.stretch, node):
        yield EditFamily(
            kind="attribute",
            make=lambda by, name=name, now=now: set_real_attribute(0, node, name, now, now + by),
            step=_SMALL_STEP * abs(now) or _SMALL_STEP,
        )


def operators_of(site: EditSite) -> Iterator[EditFamily]:
    """Each elementwise operator that has numbers, in the place of an elementwise step, of its first input."""
    step = site.changed_step
    source = step.inputs[0] if step.inputs else ""
    array = site.stretch.value(0, source) if source and site.whole_step and site.inner is None else None
    if array is None or array.shape != site.result.shape or array.dtype != np.float32 or step.op_type not in _POINTWISE:
        return
    operators = operators_with_numbers(site.stretch.context.opsets.get("", 1))
    if sum(map(bool, step.inputs)) > 1 and step.op_type not in {one.op_type for one in operators}:
        return  # a sum with a constant is no activation
    for operator in operators:
        if operator.op_type == step.op_type and len(operator.numbers) == 1:
            continue  # its attribute is fitted as it is
        yield _family_of_operator(site, operator)


def with_free_numbers(site: EditSite, edit: StretchEdit) -> tuple[EditFamily, tuple[float, ...]] | None:
    """The family of an edit that puts an elementwise operator in a step's place, and its numbers; None where it has none."""
    step, node = site.changed_step, edit.node
    source = step.inputs[0] if step.inputs else ""
    if node is None or not source or not site.whole_step or site.inner is not None or edit.numbers:
        return None
    for operator in operators_with_numbers(site.stretch.context.opsets.get("", 1)):
        if operator.op_type != node.op_type or operator.as_inputs or operator.op_type == step.op_type:
            continue
        given = {one.name: one.f for one in node.attribute}
        amounts = tuple(given.get(name, default) for name, default in operator.numbers)
        if None not in amounts:
            return _family_of_operator(site, operator), tuple(float(one or 0.0) for one in amounts)
    return None


def _family_of_operator(site: EditSite, operator: PointwiseOperator) -> EditFamily:
    step = site.changed_step

    def make(*values: float) -> StretchEdit:
        return edit_with_operator(operator, values, step.inputs[0], step.op_type)

    return EditFamily(
        kind="operator fitted",
        make=make,
        step=_SMALL_STEP,
        grid=tuple(starts_of(operator, site.result)),
        anywhere=True,
        count=len(operator.numbers),
    )


def bounds_of(site: EditSite) -> Iterator[EditFamily]:
    """The result cut off above or below, at some of its quantiles to begin with."""
    array = site.result
    finite = array[np.isfinite(array)]
    if array.dtype.kind != "f" or finite.size < 2:
        return
    low, high = float(finite.min()), float(finite.max())
    if low == high:  # one number everywhere: a bound is another number
        return
    tops = tuple(quantiles_of(finite, _QUANTILES))
    bottoms = tuple(quantiles_of(finite, [1 - part for part in _QUANTILES]))
    step = _BOUND_STEP * (high - low)
    both = EditFamily(kind="both bounds", make=cut_at_both, anywhere=True, step=step)
    over, under = ((tops, bottoms[3]), (bottoms, tops[3]))
    yield EditFamily(
        kind="upper bound",
        make=cut_above,
        anywhere=True,
        step=step,
        grid=tuple(t for t in dict.fromkeys(over[0]) if t < high),
        wider=lambda at, other=over[1]: (both, (min(other, at), at)),
    )
    yield EditFamily(
        kind="lower bound",
        make=cut_below,
        anywhere=True,
        step=step,
        grid=tuple(t for t in dict.fromkeys(under[0]) if t > low),
        wider=lambda at, other=under[1]: (both, (at, max(other, at))),
    )


def place_family(stretch: ComputedStretch, place: IndexPlace, size: float, *, scales: bool) -> EditFamily:
    """A part of a result scaled or shifted; `size` is that of its elements."""
    line = EditFamily(
        kind=PLACES,
        make=lambda factor, offset: line_edit_at(stretch, place, factor, offset),
        step=_SMALL_STEP * min(size, 1.0),
        count=2,
        place=place,
    )
    return EditFamily(
        kind=PLACES,
        make=lambda by: line_edit_at(stretch, place, 1 + by, 0.0) if scales else line_edit_at(stretch, place, 1.0, by),
        step=_SMALL_STEP * (1.0 if scales else size),
        wider=lambda by: (line, (1 + by, 0.0) if scales else (1.0, by)),
        place=place,
        elsewhere=lambda other: place_family(stretch, other, size, scales=scales),
    )


def exchange_edit(site: EditSite, name: str, axis: int, one: int, other: int) -> StretchEdit:
    """Two indices of an axis of a constant that the site's step reads, exchanged."""
    step, stretch = site.stretch.steps[0], site.stretch
    index = step.inputs.index(name)
    node = next(node for node in stretch.context.nodes if tuple(node.output) == step.outputs)
    label = input_label(node, index, schema_of(node, stretch.context.opsets), constant=True)
    length = stretch.context.constants[name].shape[axis]
    order = np.arange(length)
    order[[one, other]] = other, one
    words = f"{label} indices {one} and {other} of axis {axis} exchanged"
    bits = 7 + math.log2(length * (length - 1) / 2)
    return edit_of_input(0, words, bits, index, lambda array: np.take(array, order, axis))


def filters_of(site: EditSite) -> Iterator[EditFamily]:
    """A small linear filter over the places of a result: of 3 taps along each axis, of 3 x 3 over the last two."""
    array = site.result
    if array.dtype.kind != "f":
        return
    places = [axis for axis, length in enumerate(array.shape) if length > _LONG]
    for axes in dict.fromkeys((*((axis,) for axis in reversed(places)), tuple(places[-2:]))):
        if axes:
            yield EditFamily(
                kind="filter",
                make=_make_filter(axes),
                step=_SMALL_STEP,
                grid=tuple(_taps_beside_none(one, len(axes)) for one in _FILTERS),
                count=len(_TAPS) ** len(axes),
            )


def _taps_beside_none(taps: tuple[float, ...], axes: int) -> tuple[float, ...]:
    """The taps of a filter along each of some axes, less those of the filter that changes nothing."""
    made, none = (functools.reduce(np.multiply.outer, [np.array(one)] * axes).ravel() for one in (taps, _FILTERS[0]))
    return tuple(map(float, made - none))


def _make_filter(axes: tuple[int, ...]) -> Callable[..., StretchEdit]:
    shifts = list(itertools.product(_TAPS, repeat=len(axes)))

    def make(*by: float) -> StretchEdit:
        """`by` are the taps, less those of the filter that changes nothing."""
        told = [round_to_nice(amount + float(not any(shift))) for amount, shift in zip(by, shifts, strict=True)]

        def change(array: np.ndarray) -> np.ndarray:
            wide = np.pad(array, [(1, 1) if axis in axes else (0, 0) for axis in range(array.ndim)], mode="edge")
            made = np.zeros_like(array)
            for (tap, _), shift in zip(told, shifts, strict=True):
                cut = [slice(None)] * array.ndim
                for axis, one in zip(axes, shift, strict=True):
                    cut[axis] = slice(1 + one, 1 + one + array.shape[axis])
                made += np.asarray(tap, array.dtype) * wide[tuple(cut)]
            return made

        shown = ", ".join(f"{tap:.3g}" for tap, _ in told)
        return StretchEdit(
            words=f"the result filtered along the axes {list(axes)} with {shown}",
            bits=6 + sum(bits for _, bits in told),
            whole=lambda stretch, sample: change(stretch.base[sample]),
            numbers={f"tap {' '.join(map(str, shift))}": tap for (tap, _), shift in zip(told, shifts, strict=True)},
        )

    return make


def _leak_negatives(by: float) -> StretchEdit:
    factor, bits = round_to_nice(1 + by)
    words = f"negative results times {factor:.6g}"
    return change_result(words, 12 + bits, lambda array: np.where(array < 0, array * factor, array), negative=factor)
