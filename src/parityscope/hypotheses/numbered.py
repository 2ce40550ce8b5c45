"""Edits by their numbers, in the same words whoever fits these: a result or an input scaled, shifted or cut off; an attribute.

A number that comes near one that people choose is that one (`fitting.round_to_nice`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.fitting import round_to_nice
from parityscope.hypotheses.from_inputs import edit_of_input
from parityscope.hypotheses.schemas import REAL, attribute_value, changed_node, default_of, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from parityscope.hypotheses.stretch import ComputedStretch

_HALF = 2  # bytes of a float whose arithmetic is another's


def change_result(
    words: str,
    bits: float,
    change: Callable[[np.ndarray], np.ndarray],
    *behind: tuple[str, tuple[float, ...]],
    **numbers: float,
) -> StretchEdit:
    """An edit of every element of the result by its value alone; `behind` are the nodes that do the same."""

    def whole(stretch: ComputedStretch, sample: int) -> np.ndarray:
        base = stretch.base[sample]
        return change(base if base.dtype.kind == "f" and base.dtype.itemsize > _HALF else stretch.replayed[sample])

    return StretchEdit(words=words, bits=bits, whole=whole, pointwise=("", change), behind=behind, numbers=numbers)


def scale_result(factor: float) -> StretchEdit:
    """The result times a factor."""
    gain, bits = round_to_nice(factor)
    words = f"the result scaled by {gain:.6g}"
    return change_result(words, 4 + bits, lambda array: array * gain, ("Mul", (gain,)), factor=gain)


def shift_result(offset: float) -> StretchEdit:
    """The result plus an offset."""
    shift, bits = round_to_nice(offset)
    words = f"{shift:.6g} added to the result"
    return change_result(words, 4 + bits, lambda array: array + shift, ("Add", (shift,)), offset=shift)


def result_on_line(factor: float, offset: float) -> StretchEdit:
    """The result times a factor plus an offset."""
    (gain, gain_bits), (shift, shift_bits) = round_to_nice(factor), round_to_nice(offset)
    return change_result(
        f"the result times {gain:.6g} plus {shift:.6g}",
        5 + gain_bits + shift_bits,
        lambda array: array * gain + shift,
        ("Mul", (gain,)),
        ("Add", (shift,)),
        factor=gain,
        offset=shift,
    )


def cut_above(at: float) -> StretchEdit:
    """The result with an upper bound."""
    bound, bits = round_to_nice(at)
    words = f"the result cut off at {bound:.6g} (an upper bound, or saturation)"
    return change_result(words, 5 + bits, lambda array: np.minimum(array, bound), ("Min", (bound,)), upper=bound)


def cut_below(at: float) -> StretchEdit:
    """The result with a lower bound."""
    bound, bits = round_to_nice(at)
    words = f"the result cut off below {bound:.6g}"
    return change_result(words, 5 + bits, lambda array: np.maximum(array, bound), ("Max", (bound,)), lower=bound)


def cut_at_both(lower: float, upper: float) -> StretchEdit:
    """The result between two bounds; one number everywhere where these are one."""
    (low, low_bits), (high, high_bits) = round_to_nice(min(lower, upper)), round_to_nice(max(lower, upper))
    apart = low < high
    return change_result(
        f"the result cut off at {low:.6g} and {high:.6g}" if apart else f"the result is {low:.6g} everywhere",
        5 + low_bits + (high_bits if apart else 0.0),
        lambda array: np.clip(array, low, high),
        ("Max", (low,)),
        ("Min", (high,)),
        **({"lower": low, "upper": high} if apart else {"value": low}),
    )


def scale_input(place: int, index: int, label: str, factor: float, least: float) -> StretchEdit:
    """An input of the step at `place` times a factor; `least` are the bits of saying which."""
    gain, bits = round_to_nice(factor)
    words = f"{label} scaled by {gain:.6g}"
    return edit_of_input(place, words, least + bits, index, lambda a: (a * gain).astype(a.dtype), factor=gain)


def shift_input(place: int, index: int, label: str, offset: float, least: float) -> StretchEdit:
    """An input of the step at `place` plus an offset; as `scale_input`."""
    shift, bits = round_to_nice(offset)
    words = f"{shift:.6g} added to {label}"
    return edit_of_input(place, words, least + bits, index, lambda a: (a + shift).astype(a.dtype), offset=shift)


def cutting(bound: float, *, small: bool) -> Callable[[np.ndarray], np.ndarray]:
    """An array kept within bounds on either side, or without its `small` elements."""

    def changed(array: np.ndarray) -> np.ndarray:
        made = np.where(np.abs(array) < bound, 0, array) if small else np.clip(array, -bound, bound)
        return made.astype(array.dtype, copy=False)

    return changed


def cut_input(place: int, index: int, label: str, at: float, *, small: bool) -> StretchEdit:
    """An input of the step at `place`, cut off as `cutting` says."""
    bound, bits = round_to_nice(abs(at))
    words = f"{label} zero where smaller than {bound:.6g}" if small else f"{label} cut off on both sides at {bound:.6g}"
    return edit_of_input(place, words, 7 + bits, index, cutting(bound, small=small), bound=bound)


def real_attributes(stretch: ComputedStretch, node: onnx.NodeProto) -> Iterator[tuple[str, float]]:
    """The attributes of a node that are numbers, by name, with what they are now: given, or by default."""
    schema = schema_of(node, stretch.context.opsets)
    names = {one.name for one in node.attribute if one.type == REAL}
    names |= set() if schema is None else {n for n, spec in schema.attributes.items() if int(spec.type) == REAL}
    for name in sorted(names):
        given = attribute_value(node, name)
        now = default_of(schema, name) if given is None else given
        if now is not None:
            yield name, float(now)


def set_real_attribute(place: int, node: onnx.NodeProto, name: str, now: float, value: float) -> StretchEdit:
    """An attribute at a fitted value in place of what it is `now`."""
    told, bits = round_to_nice(value)
    return StretchEdit(
        words=f"attribute {name} {told:.6g} (fitted) in place of {now:.6g}",
        bits=5 + bits,
        at=place,
        node=changed_node(node, name, told, REAL),
        numbers={name: told},
    )


def typical_size(array: np.ndarray) -> float:
    """The root mean square of the finite elements; 1 where there is none, or where all are nought."""
    finite = array[np.isfinite(array)].astype(np.float64)
    return (math.sqrt(float(np.square(finite).mean())) if finite.size else 1.0) or 1.0
