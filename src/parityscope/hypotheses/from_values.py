"""The result as a function of what the model says it is: elementwise, by index of an axis (`from_indices`), plus another tensor.

Constants are fitted to the elements of the first sample that are for that (`Stretch.fitted_on`), and judged by the others.

The result plus several of the tensors near by at once, each times a fitted number: a sparse regression, term by term.

Each term is the one that is most along what the terms before it left (orthogonal matching pursuit: Y. Pati, R. Rezaiifar,
P. Krishnaprasad, Asilomar 1993); begun with each of the likeliest, since the first choice may be wrong where tensors are alike.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from parityscope.hypotheses.changes import changes_of
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import FITTED_BITS, fit_line, round_to_nice, slope_through_origin
from parityscope.hypotheses.from_indices import edits_by_index
from parityscope.hypotheses.functions import FUNCTIONS
from parityscope.hypotheses.measures import as_float64
from parityscope.hypotheses.numbered import (
    cut_above,
    cut_at_both,
    cut_below,
    result_on_line,
    scale_result,
    shift_result,
)
from parityscope.hypotheses.schemas import schema_of
from parityscope.operators import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parityscope.hypotheses.stretch import ComputedStretch

    Get = Callable[["ComputedStretch", int], np.ndarray]
    Get = Callable[[ComputedStretch, int], np.ndarray]

_MOST_TERMS = 3  # chosen: each costs a number and a name
_STARTS = 4  # first terms that are tried; chosen
_ELEMENTS = 4096  # that terms are fitted to; chosen
_MOST_SOURCES = 256  # chosen
_WORTH = 0.9  # of the squared error that a fit must explain to be said
_TOLD = 1e-6  # of the squared error: what fewer terms leave so little of needs no more; chosen
_ALIKE = 1e-9  # of its size: what of a tensor is left beside others says nothing of its own
# Functions that ONNX has an operator for, under the same name.
_OPERATORS = FUNCTIONS.keys() & STANDARD.keys()
_STEPS = frozenset({"Round", "Floor", "Ceil", "truncation to an integer"})  # between which a function is flat
_FITTED = 1 << 18  # elements that a few numbers are fitted to, a second's work; chosen
_LEVELS = 20_000  # elements among which steps are looked for; chosen


def _say_term(words: str, times: float) -> str:
    """What adding a tensor so many times is called."""
    return {-1.0: f"{words} left out", 1.0: f"{words} added once more"}.get(times, f"{times:.6g} times {words} added")


def _edits_with_several(
    stretch: ComputedStretch, places: np.ndarray, sources: Sequence[tuple[str, Get]]
) -> Iterator[StretchEdit]:
    """Two or three terms out of `sources` (words and how to get them), and the result itself, scaled; fitted at `places`."""
    places = places[:: max(1, places.size // _ELEMENTS)]
    x, y = (side[0].ravel()[places] for side in (stretch.replayed, stretch.found))
    error = float(np.square(y - x).sum())
    if not error or places.size <= 2 * _MOST_TERMS:
        return
    named: list[tuple[str, Get]] = [("the result", lambda one, sample: one.replayed[sample]), *sources][:_MOST_SOURCES]
    columns = [x, *(_column_of(stretch, get, places) for _, get in named[1:])]
    kept = [place for place, one in enumerate(columns) if np.isfinite(one).all() and one.any()]
    table = np.stack([columns[place] for place in kept], 1) if kept else np.zeros((places.size, 0))
    said: set[tuple[int, ...]] = set()
    for first in _likeliest_terms(table, y - x)[:_STARTS]:
        terms = [first]
        for _ in range(_MOST_TERMS - 1):
            values = np.linalg.lstsq(table[:, terms], y - x, rcond=None)[0]
            rest = y - x - table[:, terms] @ values
            more = _likeliest_terms(_without(table, terms), rest)
            if not more or more[0] in terms or float(np.square(rest).sum()) < _TOLD * error:
                break
            terms.append(more[0])
            values = np.linalg.lstsq(table[:, terms], y - x, rcond=None)[0]
            left = float(np.square(y - x - table[:, terms] @ values).sum())
            nothing = any(round_to_nice(float(value))[0] == 0 for value in values)
            if left < (1 - _WORTH) * error and not nothing and tuple(sorted(terms)) not in said:
                said.add(tuple(sorted(terms)))
                yield _edit_of_terms([named[kept[place]] for place in terms], values, len(kept))


def _column_of(stretch: ComputedStretch, get: Get, places: np.ndarray) -> np.ndarray:
    shape = stretch.replayed[0].shape
    return np.asarray(np.broadcast_to(get(stretch, 0), shape).flat[places], np.float64)


def _without(table: np.ndarray, terms: Sequence[int]) -> np.ndarray:
    """What of each column lies beside some of them."""
    some = table[:, list(terms)]
    rest = table - some @ np.linalg.lstsq(some, table, rcond=None)[0]
    alike = np.square(rest).sum(0) <= _ALIKE * np.square(table).sum(0)
    return np.where(alike, 0.0, rest)


def _likeliest_terms(table: np.ndarray, rest: np.ndarray) -> list[int]:
    """Columns by how much of the rest each explains alone, most first; those that explain nothing left out."""
    squares = np.square(table).sum(0)
    explained = np.square(rest @ table) / np.where(squares > 0, squares, np.inf)
    return [int(place) for place in np.argsort(-explained) if explained[place] > 0]


def _edit_of_terms(named: Sequence[tuple[str, Get]], values: np.ndarray, count: int) -> StretchEdit:
    nice = [round_to_nice(float(value)) for value in values]
    terms = [(get, times) for (_, get), (times, _) in zip(named, nice, strict=True)]
    said = [
        f"the result scaled by {1 + times:.6g}" if words == "the result" else _say_term(words, times)
        for (words, _), (times, _) in zip(named, nice, strict=True)
    ]

    def whole(one: ComputedStretch, sample: int) -> np.ndarray:
        found = one.replayed[sample]
        for get, times in terms:
            found = found + times * get(one, sample)
        return found

    return StretchEdit(
        words="; and ".join(said),
        bits=5 + len(named) * math.log2(max(count, 2)) + sum(bits for _, bits in nice),
        whole=whole,
        numbers={f"times {words}": times for (words, _), (times, _) in zip(named, nice, strict=True)},
    )


def elementwise_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """The result, or an input of its shape, passed through every generic change and every known function."""
    base = stretch.base[0]
    every = list(changes_of(base))
    for words, change in every:
        yield StretchEdit(
            words=f"the result {words}",
            bits=4 + math.log2(len(every)),
            whole=lambda one, sample, c=change: c(one.base[sample]),
        )
    if base.dtype.kind != "f":
        return
    bits = math.log2(len(FUNCTIONS))
    for name, function in FUNCTIONS.items():
        yield StretchEdit(
            words=f"{name} applied to the result",
            bits=4 + bits,
            whole=lambda one, sample, f=function: f(one.replayed[sample]),
            behind=((name, ()),) if name in _OPERATORS else (),
            pointwise=("", function) if name not in _STEPS else None,
        )
    for place, step in enumerate(stretch.steps[:-1]):
        for name, function in FUNCTIONS.items():
            yield StretchEdit(
                words=f"{name} applied to the result of {step.op_type}",
                bits=6 + bits,
                at=place,
                after=lambda array, f=function: f(array).astype(array.dtype),
            )
    for place, step in enumerate(stretch.steps if len(stretch.steps) > 1 else ()):
        message = onnx.NodeProto(op_type="Identity")
        for name, function in FUNCTIONS.items():
            yield StretchEdit(
                words=f"{name} in place of {step.op_type}",
                bits=6 + bits,
                at=place,
                node=message,
                before=lambda arrays: [arrays[0]],
                after=lambda array, f=function: f(array.astype(np.float64)).astype(array.dtype),
            )
    for tensor in _alike_inputs(stretch):
        yield from functions_in_place(
            stretch, tensor, lambda name, tensor=tensor: f"{name} of {tensor!r} in place of it"
        )


def functions_in_place(stretch: ComputedStretch, tensor: str, say: Callable[[str], str]) -> Iterator[StretchEdit]:
    """Every known function of a tensor that the stretch reads, in its place; `say` makes words of its name."""
    bits = 6 + math.log2(len(FUNCTIONS))
    for name, function in FUNCTIONS.items():
        operator = _operator_in_place(stretch, tensor, name)
        if operator is not None:
            yield replace(operator, words=say(name), bits=bits, pointwise=(tensor, function))
            continue
        yield StretchEdit(
            words=say(name),
            bits=bits,
            whole=lambda one, sample, f=function: f(as_float64(one.known_value(sample, tensor))),
            pointwise=(tensor, function) if name not in _STEPS else None,
        )


def _operator_in_place(stretch: ComputedStretch, tensor: str, name: str) -> StretchEdit | None:
    """An operator in the place of a stretch of one node, reading one of its inputs; None where no graph can say that."""
    made = onnx.NodeProto(op_type=name)
    if len(stretch.steps) > 1 or name not in _OPERATORS or schema_of(made, stretch.context.opsets) is None:
        return None
    index = stretch.steps[0].inputs.index(tensor)
    return StretchEdit(words="", bits=0, at=0, node=made, before=lambda arrays: [arrays[index]], reads=(index,))


def _alike_inputs(stretch: ComputedStretch) -> list[str]:
    """What the stretch reads that has its result's shape and type."""
    base, found = stretch.base[0], []
    for name in dict.fromkeys(name for step in stretch.steps for name in step.inputs if name):
        array = stretch.worlds[0].get(name)
        if array is not None and array.shape == base.shape and array.dtype == base.dtype:
            found.append(name)
    return found


def fitted_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """Scales, offsets, bounds and grids of the result, of each index of its axes, and of what lies near by."""
    known, found = stretch.replayed[0], stretch.found[0]
    chosen = stretch.fitted_on & np.isfinite(known) & np.isfinite(found)
    if not stretch.same_shape or known.ndim == 0 or np.count_nonzero(chosen) < 2:
        return
    yield from _bound_edits(known[chosen], found[chosen])
    places = np.flatnonzero(chosen)
    # An odd step, so that no power of two of an axis is met at one of its indices alone.
    places = places[:: places.size // _FITTED | 1]
    x, y = known.ravel()[places], found.ravel()[places]
    yield from _line_edits(x, y)
    yield from _polynomial_edits(stretch, x, y)
    yield from _grid_edits(stretch, x, y)
    yield from edits_by_index(stretch, chosen)
    yield from _edits_with_others(stretch, places, x, y)


def _line_edits(x: np.ndarray, y: np.ndarray) -> Iterator[StretchEdit]:
    yield result_on_line(*fit_line(x, y))
    yield scale_result(slope_through_origin(x, y))
    yield shift_result(float(np.median(y - x)))
    below, above = x < 0, x > 0
    if below.sum() > 1 and above.sum() > 1:
        (low, low_bits), (high, high_bits) = (
            round_to_nice(slope_through_origin(x[part], y[part])) for part in (below, above)
        )
        yield StretchEdit(
            words=f"negative results times {low:.6g} and positive ones times {high:.6g}",
            bits=6 + low_bits + high_bits,
            whole=lambda one, sample: np.where(one.replayed[sample] < 0, low, high) * one.replayed[sample],
            numbers={"negative": low, "positive": high},
        )


def _bound_edits(x: np.ndarray, y: np.ndarray) -> Iterator[StretchEdit]:
    """Cut off at the largest and least number that the candidate gives, where some of what the model says lies beyond."""
    low, high = (round_to_nice(float(end))[0] for end in (y.min(), y.max()))
    if (x > high).any():
        yield cut_above(high)
    if (x < low).any():
        yield cut_below(low)
    if low == high or ((x > high).any() and (x < low).any()):
        yield cut_at_both(low, high)


def _polynomial_edits(stretch: ComputedStretch, x: np.ndarray, y: np.ndarray) -> Iterator[StretchEdit]:
    """A polynomial of the result, its variable scaled so that powers stay of one size."""
    for degree in (2, 3):
        if np.unique(x[:1000]).size <= degree + 1:
            return
        fitted = np.polyfit(x / stretch.size, y, degree)
        shown = ", ".join(f"{value:.4g}" for value in fitted / stretch.size ** np.arange(degree, -1, -1.0))
        yield StretchEdit(
            words=f"a polynomial of the result of degree {degree} ({shown})",
            bits=6 + FITTED_BITS * (degree + 1),
            whole=lambda one, sample, p=fitted: np.polyval(p, one.replayed[sample] / one.size),
        )


def _grid_edits(stretch: ComputedStretch, x: np.ndarray, y: np.ndarray) -> Iterator[StretchEdit]:
    """Rounded to multiples of one step, where the candidate's numbers are few."""
    part = y if y.size <= _LEVELS else np.random.default_rng(1).choice(y, _LEVELS)
    levels = np.unique(part)
    if not 1 < levels.size < np.unique(x[: part.size]).size / 2 + 2:
        return
    gaps = np.diff(levels)
    step = float(gaps[gaps > 1e-4 * np.median(gaps)].min())
    sizes = np.sort(np.abs(levels))
    for count in (2**power for power in range(2, 18) if 2**power < 2 * sizes.size):  # exact over a growing range
        multiples = np.round(sizes[:count] / step)
        step = slope_through_origin(multiples, sizes[:count]) or step
    for word, rounding in (("rounded", np.round), ("rounded down", np.floor), ("truncated", np.trunc)):
        yield StretchEdit(
            words=f"the result {word} to multiples of {step:.6g} (quantized)",
            bits=6 + FITTED_BITS,
            whole=lambda one, sample, r=rounding: r(one.replayed[sample] / step) * step,
            numbers={"step": step},
        )
    if stretch.size:
        zero = float(np.median(part - np.round(part / step) * step))
        yield StretchEdit(
            words=f"the result rounded to multiples of {step:.6g} beside {zero:.6g} (quantized)",
            bits=6 + 2 * FITTED_BITS,
            whole=lambda one, sample: np.round((one.replayed[sample] - zero) / step) * step + zero,
            numbers={"step": step, "offset": zero},
        )


def _edits_with_others(
    stretch: ComputedStretch, places: np.ndarray, x: np.ndarray, y: np.ndarray
) -> Iterator[StretchEdit]:
    """The result plus, or times, another tensor near by: a bias lost or added twice, a residual left out."""
    shape = stretch.replayed[0].shape
    sources: list[tuple[str, Get]] = []
    names = [*stretch.context.constants, *stretch.worlds[0]]
    for name in names:
        array = stretch.value(0, name)
        if array is None or array.dtype.kind not in "fiu" or not array.size:
            continue
        # A vector may lie along any axis.
        views = [array.shape] if array.ndim != 1 else [(array.size, *(1,) * behind) for behind in range(len(shape))]
        sources += [
            (repr(name), lambda one, sample, n=name, v=view: as_float64(one.known_value(sample, n)).reshape(v))
            for view in views
            if len(view) <= len(shape) and all(a in (1, b) for a, b in zip(view[::-1], shape[::-1], strict=False))
        ]
    sources += [
        (f"its mean along axis {axis}", lambda one, s, a=axis: one.replayed[s].mean(a, keepdims=True))
        for axis in range(len(shape))
    ]
    bits = 5 + math.log2(max(1, len(sources)))
    for words, get in sources:
        other = np.broadcast_to(get(stretch, 0), shape).flat[places]
        if not np.isfinite(other).all() or not other.any():
            continue
        times, times_bits = round_to_nice(slope_through_origin(other, y - x))
        yield StretchEdit(
            words=_say_term(words, times),
            bits=bits + times_bits,
            whole=lambda one, s, t=times, g=get: one.replayed[s] + t * g(one, s),
            numbers={"times": times},
        )
        factor, factor_bits = round_to_nice(slope_through_origin(other, y))
        yield StretchEdit(
            words=f"{factor:.6g} times {words} in place of the result",
            bits=bits + factor_bits,
            whole=lambda one, s, f=factor, g=get: f * g(one, s) + 0 * one.replayed[s],
        )
        yield StretchEdit(
            words=f"the result multiplied by {words}",
            bits=bits + 4,
            whole=lambda one, s, g=get: one.replayed[s] * g(one, s),
        )
        yield StretchEdit(
            words=f"the result divided by {words}",
            bits=bits + 4,
            whole=lambda one, s, g=get: one.replayed[s] / g(one, s),
        )
    yield from _edits_with_several(stretch, places, sources)
