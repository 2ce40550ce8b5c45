"""Inputs of a step left out, exchanged, changed as arrays, or taken from elsewhere."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.hypotheses.changes import FORMATS, BlockOrder, blocks_of, changes_of, round_to_format
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_attributes import integers_near, lists_near, reals_near, thresholds_near
from parityscope.hypotheses.functions import FUNCTIONS
from parityscope.hypotheses.schemas import (
    describe_value,
    gives_decisions,
    input_label,
    schema_of,
)
from parityscope.hypotheses.written import do_again_from
from parityscope.operators import OPERATORS, role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import onnx

    from parityscope.hypotheses.edits import Arrays
    from parityscope.hypotheses.stretch import ComputedStretch

    Change = Callable[[np.ndarray], np.ndarray]

# Words of `changes_of` that are asked of constants before all others.
_FIRST = re.compile(
    r"transposed|reversed|rolled by -?1 |rounded|quantized to int[48] as|2 blocks|block \d of 2 |times (?:0|-1)$|last of"
)
# By the role of an input. Biased, as BatchNormalization-15 normalizes in training.
_STATISTICS: Mapping[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "running mean": lambda data, over: data.mean(over, dtype=np.float64),
    "running variance": lambda data, over: data.var(over, dtype=np.float64),
}
_SMALL = 8  # elements: a constant of so few is an attribute in all but name
_MOST_ALIKE = 16  # tensors of one shape that an input may have been taken from
_MOST_GROWN = (
    2.0  # times as large as they are: extents that are tried; 128 more on four axes of a picture are gigabytes
)


def input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs of `node`, the step at `place`, left out or exchanged."""
    values = input_values(stretch, node)
    labels = {index: label_of_input(stretch, node, index) for index, name in enumerate(node.input) if name}
    for index, label in labels.items():
        kept = tuple(None if other == index else other for other in range(len(node.input)))
        constant = stretch.context.constants.get(node.input[index])
        value = "" if constant is None or constant.size != 1 else f" = {describe_value(constant.item())}"
        yield replace(edit_of_input(place, f"{label}{value} left out", 4, index, None), reads=kept)
        if index in values and values[index].dtype.kind in "fiu":
            yield edit_of_input(place, f"{label} all zeros", 5, index, np.zeros_like)
            yield edit_of_input(place, f"{label} all ones", 6, index, np.ones_like)
    running = {index: role_of(node.op_type, index) for index in labels}
    running = {index: role for index, role in running.items() if role in _STATISTICS}
    if running:
        words = "statistics of the batch at hand in place of the trained ones (training mode)"
        yield StretchEdit(words=words, bits=5, at=place, before=_take_statistics(running))
    pairs = list(itertools.combinations(labels, 2))
    which = math.log2(max(1, len(pairs)))
    for one, other in pairs:
        order = tuple({one: other, other: one}.get(index, index) for index in range(len(node.input)))
        words = f"inputs {one} and {other} exchanged"
        yield StretchEdit(words=words, bits=3 + which, at=place, before=_exchange_inputs(one, other), reads=order)
        for source, target in ((other, one), (one, other)):
            words = f"{labels[source]} taken for input {target} as well"
            order = tuple(source if index == target else index for index in range(len(node.input)))
            yield StretchEdit(words=words, bits=6 + which, at=place, before=_copy_input(source, target), reads=order)


def _take_statistics(running: Mapping[int, str]) -> Callable[[Arrays], Arrays]:
    """Statistics of the first input over all but its channels, in place of those that were given (by place, and which)."""

    def before(arrays: Arrays) -> Arrays:
        data = arrays[0]
        if data is None:
            return arrays
        over = (0, *range(2, data.ndim))
        made = {index: _STATISTICS[role](data, over).astype(data.dtype) for index, role in running.items()}
        return [made.get(index, array) for index, array in enumerate(arrays)]

    return before


def constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Constants in another layout, order or format, or a neighbour's: the few changes that exports make most easily."""
    constants = stretch.context.constants
    for index, array in input_values(stretch, node).items():
        if node.input[index] not in constants or array.dtype.kind != "f" or array.size < 2:
            continue
        label = label_of_input(stretch, node, index)
        chosen = [(words, change) for words, change in changes_of(array) if _FIRST.match(words)]
        for words, change in chosen:
            yield edit_of_input(place, f"{label} {words}", 6 + math.log2(len(chosen)), index, change)
        alike = [name for name in constants if name != node.input[index] and _is_alike(constants[name], array)]
        for name in alike[:_MOST_ALIKE]:
            words = f"constant {name!r} in place of {label}"
            yield edit_of_input(place, words, 6 + math.log2(len(alike)), index, constants[name])


def operand_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs taken from elsewhere: a sibling, what a block reads, another of these."""
    for index, array in input_values(stretch, node).items():
        yield from _other_tensor_edits(stretch, place, node, label_of_input(stretch, node, index), index, array)


def changed_constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Constants changed as arrays, small ones as attributes are."""
    values = input_values(stretch, node)
    constants = [index for index in values if node.input[index] in stretch.context.constants]
    for index in constants:
        if values[index].size <= _SMALL:
            yield from _small_constant_edits(stretch, place, node, index, values[index])
    for index in constants:
        edits = _input_change_edits(place, label_of_input(stretch, node, index), index, values[index], len(values))
        yield from _keep_extents(edits, node, index, values)


def changed_input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """What a node reads of others changed as arrays."""
    values = input_values(stretch, node)
    for index, array in values.items():
        if node.input[index] not in stretch.context.constants:
            edits = _input_change_edits(place, label_of_input(stretch, node, index), index, array, len(values))
            yield from _keep_extents(edits, node, index, values)


def input_values(stretch: ComputedStretch, node: onnx.NodeProto) -> dict[int, np.ndarray]:
    """What a node reads on the first sample, by the place of the input."""
    found = {index: stretch.value(0, name) for index, name in enumerate(node.input) if name}
    return {index: array for index, array in found.items() if array is not None}


def label_of_input(stretch: ComputedStretch, node: onnx.NodeProto, index: int) -> str:
    """What an input is called in a sentence."""
    schema = schema_of(node, stretch.context.opsets)
    return input_label(node, index, schema, constant=node.input[index] in stretch.context.constants)


def edit_of_input(
    place: int, words: str, bits: float, index: int, change: Change | np.ndarray | None, **numbers: float
) -> StretchEdit:
    """An input changed, given as another array, or left out (None); `numbers` are what was fitted."""
    if callable(change):
        return edit_of_inputs(place, words, bits, {index: change}, **numbers)
    return StretchEdit(words=words, bits=bits, at=place, before=_replace_input(index, change), numbers=numbers)


def edit_of_inputs(place: int, words: str, bits: float, each: Mapping[int, Change], **numbers: float) -> StretchEdit:
    """Several inputs, by place, each changed as an array alone."""

    def before(arrays: Arrays) -> Arrays:
        return [
            each[index](array) if index in each and array is not None else array for index, array in enumerate(arrays)
        ]

    return StretchEdit(words=words, bits=bits, at=place, before=before, each=each, numbers=numbers)


def _replace_input(index: int, new: np.ndarray | None) -> Callable[[Arrays], Arrays]:
    def before(arrays: Arrays) -> Arrays:
        found = [new if place == index else array for place, array in enumerate(arrays)]
        while new is None and found and found[-1] is None:
            found.pop()
        return found

    return before


def _exchange_inputs(one: int, other: int) -> Callable[[Arrays], Arrays]:
    order = {one: other, other: one}
    return lambda arrays: [arrays[order.get(index, index)] for index in range(len(arrays))]


def _copy_input(source: int, target: int) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [arrays[source] if index == target else array for index, array in enumerate(arrays)]


def _small_constant_edits(
    stretch: ComputedStretch, place: int, node: onnx.NodeProto, index: int, array: np.ndarray
) -> Iterator[StretchEdit]:
    label = label_of_input(stretch, node, index)
    flat = array.ravel().tolist()
    found: list[list[Any]] = []
    if array.size == 1 and array.dtype.kind == "f":
        # No slope leads to a threshold, so that its values are listed.
        listed = thresholds_near(flat[0]) if gives_decisions(schema_of(node, stretch.context.opsets)) else []
        found = [[value] for value in dict.fromkeys([*listed, *reals_near(flat[0])])]
    elif array.size == 1 and array.dtype.kind in "iu":
        found = [[value] for value in integers_near(flat[0], 4)]
    elif array.dtype.kind in "iu" and flat:
        found = lists_near(flat, 4)
    for value in found:
        if len(value) == array.size:
            made = np.array(value).reshape(array.shape).astype(array.dtype)
        elif array.ndim == 1:
            made = np.array(value).astype(array.dtype)
        else:
            continue
        words = f"{label} {describe_value(value)} in place of {describe_value(flat)}"
        yield edit_of_input(place, words, 4 + math.log2(len(found)), index, made)


def _other_tensor_edits(
    stretch: ComputedStretch, place: int, node: onnx.NodeProto, label: str, index: int, array: np.ndarray
) -> Iterator[StretchEdit]:
    """Another tensor of the same shape and type in the place of an input."""
    alike = [
        name
        for name in (*stretch.worlds[0], *stretch.context.constants)
        if name != node.input[index] and _is_alike(stretch.value(0, name), array)
    ][:_MOST_ALIKE]
    for name in alike:
        yield edit_taking(stretch, f"{name!r} in place of {label}", 6 + math.log2(len(alike)), place, index, name)


def edit_taking(stretch: ComputedStretch, words: str, bits: float, place: int, index: int, name: str) -> StretchEdit:
    """An input of the step at `place` that is another tensor, by its name."""
    return StretchEdit(
        words=words,
        bits=bits,
        whole=lambda one, sample: one.run(sample, edit_of_input(place, "", 0, index, one.known_value(sample, name))),
        again=do_again_from(stretch, place, {index: name}),
    )


def _is_alike(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and one.shape == other.shape and one.dtype == other.dtype


def _input_change_edits(place: int, label: str, index: int, array: np.ndarray, count: int) -> Iterator[StretchEdit]:
    if array.size > 1:
        every = list(changes_of(array))
        for words, change in every:
            yield edit_of_input(place, f"{label} {words}", 5 + math.log2(len(every) * count), index, change)
        if array.dtype.kind == "f":
            for name, function in FUNCTIONS.items():
                bits = 6 + math.log2(len(FUNCTIONS))
                through: Change = lambda a, f=function: f(a.astype(np.float64)).astype(a.dtype)  # noqa: E731
                yield edit_of_input(place, f"{name} of {label}", bits, index, through)
    elif array.dtype.kind == "f":
        for name in FORMATS:
            made = round_to_format(name)(array)
            words = f"{label} rounded to {name}: {float(array.ravel()[0]):.4g} becomes {float(made.ravel()[0]):.4g}"
            yield edit_of_input(place, words, 7, index, made)


def _extents_of(node: onnx.NodeProto) -> tuple[int, ...]:
    """The inputs that say how large the results are."""
    return OPERATORS[node.op_type].enlarges if node.op_type in OPERATORS else ()


def _keep_extents(
    edits: Iterator[StretchEdit], node: onnx.NodeProto, index: int, values: Mapping[int, np.ndarray]
) -> Iterator[StretchEdit]:
    """These edits of one input; where it says how large the result is, those that make it no more than some times larger."""
    if index not in _extents_of(node):
        yield from edits
        return
    arrays = [values.get(place) for place in range(index + 1)]
    most = _MOST_GROWN * max(1.0, float(np.abs(values[index]).max(initial=0)))
    for edit in edits:
        changed = edit.before(arrays)[index:] if edit.before is not None else ()
        if all(array is not None and np.abs(array).max(initial=0) <= most for array in changed):
            yield edit


def joint_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """One change of several constants at once: the order of gates, a layout, a format."""
    constants = stretch.context.constants
    arrays = {
        index: constants[name]
        for index, name in enumerate(node.input)
        if name in constants and constants[name].size > 1 and constants[name].dtype.kind in "fiu"
        if index not in _extents_of(node)
    }
    if len(arrays) < 2:
        return
    each = {index: dict(changes_of(array)) for index, array in arrays.items()}
    for words in dict.fromkeys(itertools.chain.from_iterable(each.values())):
        having = [index for index in each if words in each[index]]
        if len(having) > 1:
            bits = 6 + math.log2(len(each[having[0]]))
            together = {index: each[index][words] for index in having}
            yield edit_of_inputs(place, f"constants {having} all {words}", bits, together)
    for axis in range(max(array.ndim for array in arrays.values())):
        length = min(array.shape[axis] for array in arrays.values() if array.ndim > axis)
        fitting = [i for i, a in arrays.items() if a.ndim > axis and a.shape[axis] in (length, 2 * length)]
        counts = {2, 3, 4}.intersection(blocks_of(length)) if len(fitting) > 1 and not gates_of(node) else ()
        for order in itertools.chain.from_iterable(itertools.permutations(range(count)) for count in sorted(counts)):
            if list(order) != sorted(order):
                bits, changes = (
                    7 + math.log2(math.factorial(len(order))),
                    dict.fromkeys(fitting, BlockOrder(axis, order, length)),
                )
                words = f"{len(order)} blocks (gates) of constants {fitting} in the order {list(order)}"
                yield edit_of_inputs(place, words, bits, changes)


def gates_of(node: onnx.NodeProto) -> str:
    """A letter for each gate of a recurrent layer, in the order of its weights; none of any other operator."""
    return OPERATORS[node.op_type].gates if node.op_type in OPERATORS else ""


def near_constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """A constant near by added to an input, or multiplied with it."""
    values = {i: a for i, a in input_values(stretch, node).items() if a.dtype.kind == "f" and a.size}
    constants = {n: a for n, a in stretch.context.constants.items() if a.dtype.kind == "f" and a.size}
    for index, array in values.items():
        for name, other in constants.items():
            if name == node.input[index]:
                continue
            yield from _edit_with_constant(place, index, array, name, other, 8 + math.log2(len(constants) + 1))


def _edit_with_constant(
    place: int, index: int, array: np.ndarray, name: str, other: np.ndarray, bits: float
) -> Iterator[StretchEdit]:
    views = [other.shape] if other.ndim != 1 else [(other.size, *(1,) * behind) for behind in range(array.ndim)]
    for view in views:
        if len(view) > array.ndim or any(a not in (1, b) for a, b in zip(view[::-1], array.shape[::-1], strict=False)):
            continue
        shaped = other.reshape(view)
        for sign in (1.0, -1.0, *((0.5, -0.5) if other.size == 1 else ())):
            words = f"{sign:+g} times {name!r} added to input {index}"
            yield edit_of_input(place, words, bits, index, lambda a, o=shaped, s=sign: (a + s * o).astype(a.dtype))
        words = f"input {index} multiplied by {name!r}"
        yield edit_of_input(place, words, bits, index, lambda a, o=shaped: (a * o).astype(a.dtype))
