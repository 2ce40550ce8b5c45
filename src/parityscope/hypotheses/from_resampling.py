"""The result, or an input, resampled along its axes: half a pixel off, with corners aligned, by fitted numbers, coarser.

Index i of n is read at `m + s (i - m) + t` with m = (n - 1) / 2: s is a scale about the middle, t a shift in indices, and
between indices it is linear. What half-pixel centres and aligned corners differ by is a scale alone, (n - 1) / n or its inverse
(ONNX operator specification, Resize, coordinate_transformation_mode; PyTorch, grid_sample, align_corners).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.case.imaging.kernels import KERNELS, kernel_weights, kernel_words
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import fit_numbers, round_to_nice
from parityscope.hypotheses.from_inputs import edit_of_input, input_values, label_of_input
from parityscope.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import onnx

    from parityscope.hypotheses.stretch import ComputedStretch

_MOST = 1 << 16  # elements of an input that is resampled; chosen
_LOOKED_AT = 1 << 13  # elements that numbers are fitted to; chosen
_LEAST = 3  # indices of an axis, below which nothing is resampled; chosen
_STARTS = (0.25, -0.25)  # shifts where fits begin; chosen
_PROMISING, _WORTH = 0.2, 0.5  # of the squared error: what is looked at further, and what is said; chosen
_COARSER = (2, 4)  # how many indices get one value; chosen
_LEAST_SHRUNK, _MOST_SHRUNK = 16, 4096  # indices of an axis that is shrunk and back; chosen
_EDGES = {"edge": "the edge repeated", "constant": "zeros beyond the edge"}
# What is said of a rule -> scale about the middle and shift, of an axis' length.
_RULES: dict[str, Callable[[int], tuple[float, float]]] = {
    "half a pixel further": lambda _: (1.0, 0.5),
    "half a pixel before": lambda _: (1.0, -0.5),
    "with corners aligned in place of half pixels": lambda length: ((length - 1) / length, 0.0),
    "at half pixels in place of aligned corners": lambda length: (length / (length - 1), 0.0),
}


@dataclass(frozen=True, slots=True)
class _Resampling:
    """Along which axes, by (scale, shift) of each, and what lies beyond the edge."""

    axes: tuple[int, ...]
    by: tuple[tuple[float, float], ...]
    edge: str = "edge"

    def of(self, array: np.ndarray) -> np.ndarray:
        """The array resampled, in float64."""
        array = np.asarray(array, np.float64)
        for axis, (scale, shift) in zip(self.axes, self.by, strict=True):
            middle = (array.shape[axis] - 1) / 2
            places = middle + scale * (np.arange(array.shape[axis]) - middle) + shift
            array = _read_between(array, axis, places, self.edge)
        return array


def _read_between(array: np.ndarray, axis: int, places: np.ndarray, edge: str) -> np.ndarray:
    """What lies at places between the indices of an axis, by lines."""
    around = [(1, 1) if other == axis else (0, 0) for other in range(array.ndim)]
    padded = np.pad(array, around, mode=edge)  # type: ignore[call-overload]
    places = np.clip(places + 1, 0, padded.shape[axis] - 1)
    low = np.minimum(places.astype(np.int64), padded.shape[axis] - 2)
    part = (places - low).reshape([-1 if other == axis else 1 for other in range(array.ndim)])
    below, above = (np.take(padded, index, axis) for index in (low, low + 1))
    return np.asarray(below + part * (above - below))


def resampled_edits(stretch: ComputedStretch) -> Iterator[StretchEdit]:
    """The result resampled by usual rules, by fitted numbers, or coarser."""
    shape = stretch.replayed[0].shape
    if not stretch.same_shape or not np.isfinite(stretch.replayed[0]).all():
        return
    sets = _axes_together(shape)
    for axes in sets:
        known, found, chosen = (
            _some_planes(array, axes) for array in (stretch.replayed[0], stretch.found[0], stretch.fitted_on)
        )
        chosen &= np.isfinite(found)
        whole = float(np.square((found - known)[chosen]).sum())

        def left(
            made: _Resampling, known: np.ndarray = known, found: np.ndarray = found, chosen: np.ndarray = chosen
        ) -> np.ndarray:
            axes = tuple(range(1, known.ndim))
            return np.asarray((found - replace(made, axes=axes).of(known))[chosen])

        for words, bits, made in _usual_ones("the result", shape, axes, len(sets)):
            if float(np.square(left(made)).sum()) < (1 - _PROMISING) * whole:
                yield StretchEdit(words=words, bits=bits, whole=lambda one, sample, r=made: r.of(one.replayed[sample]))
        yield from _coarser_edits(axes, len(sets))
        yield from _fitted_edits(left, shape, axes, whole)


def _some_planes(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Some of what lies along these axes, whole, one behind the other along a first axis."""
    planes = np.moveaxis(array, axes, range(-len(axes), 0)).reshape(-1, *(array.shape[axis] for axis in axes))
    return np.array(planes[:: (array.size // _LOOKED_AT) | 1])  # an odd step meets every channel


def resampled_input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """An input of the step read resampled by usual rules."""
    for index, array in input_values(stretch, node).items():
        if array.dtype.kind != "f" or array.size > _MOST or node.input[index] in stretch.context.constants:
            continue
        sets = _axes_together(array.shape)
        label = label_of_input(stretch, node, index)
        for axes in sets:
            for words, bits, one in _usual_ones(label, array.shape, axes, len(sets)):
                if one.edge == "edge":  # of what is read more would take a run of the layer each
                    yield edit_of_input(place, words, bits + 1, index, lambda a, r=one: r.of(a).astype(a.dtype))


def _axes_together(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes that may lie in space or time: all behind batch and channels, all between these, and each alone."""
    inner = [axis for axis in range(len(shape)) if axis and shape[axis] >= _LEAST]
    together = [tuple(axis for axis in inner if axis >= 2), tuple(axis for axis in inner if axis < len(shape) - 1)]
    return list(dict.fromkeys(axes for axes in (*together, *((axis,) for axis in inner)) if axes and len(shape) > 2))


def _usual_ones(
    label: str, shape: Sequence[int], axes: tuple[int, ...], sets: int
) -> Iterator[tuple[str, float, _Resampling]]:
    bits = 6 + math.log2(len(_RULES) * len(_EDGES) * sets)
    for (rule, by), edge in itertools.product(_RULES.items(), _EDGES):
        made = _Resampling(axes, tuple(by(shape[axis]) for axis in axes), edge)
        yield f"{label} resampled along {_say_axes(axes)}: {rule}, {_EDGES[edge]}", bits, made


def _say_axes(axes: Sequence[int]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"the axes {list(axes)}"


def _coarser_edits(axes: tuple[int, ...], sets: int) -> Iterator[StretchEdit]:
    """One value for several indices: the first of them, or lines between those."""
    for count in _COARSER:
        for words, read in (
            (f"the first of each {count} of them repeated", _hold_first),
            (f"lines between every {count}. of them", _join_first),
        ):
            yield StretchEdit(
                words=f"the result coarser along {_say_axes(axes)}: {words}",
                bits=6 + math.log2(2 * len(_COARSER) * sets),
                whole=lambda one, sample, r=read, c=count: r(one.replayed[sample], axes, c),
            )


def shrunk_edits(array: np.ndarray) -> Iterator[StretchEdit]:
    """The result at a part of its size and back, as thumbnails and lower rates of sampling are, with each usual kernel."""
    if array.dtype.kind not in "fu":
        return
    planes = [axes for axes in ((2, 3), (1, 2)) if len(array.shape) == 4]
    for axes in (*planes, (array.ndim - 1,)):
        lengths = [array.shape[axis] for axis in axes]
        if not _LEAST_SHRUNK <= min(lengths) <= max(lengths) <= _MOST_SHRUNK:
            continue
        for part, rounded, kernel in itertools.product(_COARSER, (math.floor, math.ceil), KERNELS):
            sizes = [int(rounded(length / part)) for length in lengths]
            size = " x ".join(map(str, sizes))
            if rounded is math.ceil and all(length % part == 0 for length in lengths):
                continue
            yield StretchEdit(
                words=f"the result shrunk to {size} along {_say_axes(axes)} and back, {kernel_words(kernel)}",
                bits=6 + math.log2(2 * len(_COARSER) * len(KERNELS) * (1 + len(planes))),
                whole=lambda one, sample, a=axes, s=sizes, k=kernel: _shrink(one.base[sample], a, s, k),
            )


def _shrink(array: np.ndarray, axes: Sequence[int], sizes: Sequence[int], kernel: str) -> np.ndarray:
    made = array.astype(np.float64)
    for axis, size in zip(axes, sizes, strict=True):
        length = array.shape[axis]
        there_and_back = kernel_weights(kernel, size, length) @ kernel_weights(kernel, length, size)
        made = np.moveaxis(np.tensordot(there_and_back, made, (1, axis)), 0, axis)
    return (made if array.dtype.kind == "f" else np.clip(np.rint(made), 0, np.iinfo(array.dtype).max)).astype(
        array.dtype
    )


def _hold_first(array: np.ndarray, axes: tuple[int, ...], count: int) -> np.ndarray:
    for axis in axes:
        array = np.take(array, np.arange(array.shape[axis]) // count * count, axis)
    return array


def _join_first(array: np.ndarray, axes: tuple[int, ...], count: int) -> np.ndarray:
    for axis in axes:
        coarse = np.take(array, np.arange(0, array.shape[axis], count), axis)
        array = _read_between(coarse, axis, np.arange(array.shape[axis]) / count, "edge")
    return array


def _fitted_edits(
    left: Callable[[_Resampling], np.ndarray], shape: Sequence[int], axes: tuple[int, ...], whole: float
) -> Iterator[StretchEdit]:
    """Shifts, and shifts with scales, that leave least, where they explain enough; a first turn says whether to go on."""
    count = len(axes)

    def left_by(values: tuple[float, ...]) -> np.ndarray:
        return left(_Resampling(axes, _numbers_by_axis(values, count)))

    apart = [tuple(by(shape[axis])[0] for axis in axes) for by in list(_RULES.values())[2:]]
    starts = {
        False: list(itertools.product(_STARTS, repeat=count)),
        True: [(0.0,) * count + scales for scales in apart],
    }
    for scaled, some in starts.items():
        first = min(fit_numbers(left_by, start, 1) for start in some)
        if first[0] >= (1 - _PROMISING) * whole:
            continue
        rest, found = fit_numbers(left_by, first[1])
        if rest >= (1 - _WORTH) * whole:
            continue
        nice = [round_to_nice(value) for value in found]
        by = _numbers_by_axis([value for value, _ in nice], count)
        resampling = _Resampling(axes, by)
        said = "; ".join(_say_resampling(axis, *pair, scaled=scaled) for axis, pair in zip(axes, by, strict=True))
        yield StretchEdit(
            words=f"the result resampled (fitted): {said}",
            bits=6 + sum(bits for _, bits in nice),
            whole=lambda one, sample, r=resampling: r.of(one.replayed[sample]),
            numbers={
                f"{name} {axis}": number
                for axis, pair in zip(axes, by, strict=True)
                for name, number in zip(("scale", "shift"), pair, strict=True)
            },
        )


def _say_resampling(axis: int, scale: float, shift: float, *, scaled: bool) -> str:
    if scaled:
        return f"read {shift:.6g} indices further and scaled by {scale:.6g} about its middle along axis {axis}"
    return f"read {shift:.6g} indices further along axis {axis}"


def _numbers_by_axis(values: Sequence[float], count: int) -> tuple[tuple[float, float], ...]:
    """(scale, shift) of each axis, of shifts with or without scales behind them."""
    scales = values[count:] or (1.0,) * count
    return tuple(zip(scales, values[:count], strict=True))
