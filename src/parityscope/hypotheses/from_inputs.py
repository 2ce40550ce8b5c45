"""Inputs of a step left out, exchanged, changed as arrays, fitted, or taken from elsewhere."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.hypotheses.changes import FORMATS, blocks_of, changes_of, round_to_format
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_attributes import integers_near, lists_near, reals_near
from parityscope.hypotheses.from_values import round_to_nice
from parityscope.hypotheses.functions import FUNCTIONS
from parityscope.hypotheses.schemas import (
    REAL,
    attribute_value,
    changed_node,
    default_of,
    describe_value,
    input_label,
    schema_of,
)
from parityscope.hypotheses.stretch import as_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import onnx

    from parityscope.hypotheses.edits import Arrays
    from parityscope.hypotheses.stretch import ComputedStretch

    Change = Callable[[np.ndarray], np.ndarray]

__all__ = [
    "changed_constant_edits",
    "changed_input_edits",
    "constant_edits",
    "fitted_attribute_edits",
    "fitted_input_edits",
    "input_edits",
    "joint_edits",
    "near_constant_edits",
    "operand_edits",
    "row_edits",
]

# Words of `changes_of` that are asked of constants before all others.
_FIRST = re.compile(
    r"transposed|reversed|rolled by -?1 |rounded|quantized to int[48] as|2 blocks|block \d of 2 |times (?:0|-1)$|last of"
)
_SMALL = 8  # elements: a constant of so few is an attribute in all but name
_MOST_ALIKE = 16  # tensors of one shape that an input may have been taken from
_FITTINGS, _MANY_FITTINGS = 3, 10  # Gauss-Newton steps; what is linear needs one
_LEAST_STEP = 1e-3  # of an attribute: by which one that is nearly nought is moved first; chosen
_MOST_ROWS = 64
_ALONG = 0.2  # of the squared error: what one row's change must explain to first order to be looked at


def input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs of `node`, the step at `place`, left out or exchanged."""
    values = _input_values(stretch, node)
    labels = {index: _label_of_input(stretch, node, index) for index, name in enumerate(node.input) if name}
    for index, label in labels.items():
        kept = tuple(None if other == index else other for other in range(len(node.input)))
        constant = stretch.context.constants.get(node.input[index])
        value = "" if constant is None or constant.size != 1 else f" = {describe_value(constant.item())}"
        yield replace(_edit_of_input(place, f"{label}{value} left out", 4, index, None), reads=kept)
        if index in values and values[index].dtype.kind in "fiu":
            yield _edit_of_input(place, f"{label} all zeros", 5, index, np.zeros_like)
            yield _edit_of_input(place, f"{label} all ones", 6, index, np.ones_like)
    for one, other in itertools.combinations(labels, 2):
        order = tuple({one: other, other: one}.get(index, index) for index in range(len(node.input)))
        words = f"inputs {one} and {other} exchanged"
        yield StretchEdit(words=words, bits=5, at=place, before=_exchange_inputs(one, other), reads=order)
        yield StretchEdit(
            words=f"{labels[other]} taken for input {one} as well", bits=6, at=place, before=_copy_input(other, one)
        )
        yield StretchEdit(
            words=f"{labels[one]} taken for input {other} as well", bits=6, at=place, before=_copy_input(one, other)
        )


def constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Constants in another layout, order or format, or a neighbour's: the few changes that exports make most easily."""
    constants = stretch.context.constants
    for index, array in _input_values(stretch, node).items():
        if node.input[index] not in constants or array.dtype.kind != "f" or array.size < 2:
            continue
        label = _label_of_input(stretch, node, index)
        chosen = [(words, change) for words, change in changes_of(array) if _FIRST.match(words)]
        for one, other in itertools.combinations(range(array.ndim), 2):
            if array.shape[one] == array.shape[other] > 1:
                turned: Change = lambda a, x=one, y=other: np.ascontiguousarray(a.swapaxes(x, y))  # noqa: E731
                chosen.insert(0, (f"transposed (axes {one} and {other})", turned))
        for words, change in chosen:
            yield _edit_of_input(place, f"{label} {words}", 6 + math.log2(len(chosen)), index, change)
        alike = [name for name in constants if name != node.input[index] and _is_alike(constants[name], array)]
        for name in alike[:_MOST_ALIKE]:
            words = f"constant {name!r} in place of {label}"
            yield _edit_of_input(place, words, 6 + math.log2(len(alike)), index, constants[name])


def operand_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs taken from elsewhere: a sibling, what a block reads, another of these."""
    for index, array in _input_values(stretch, node).items():
        yield from _other_tensor_edits(stretch, place, node, _label_of_input(stretch, node, index), index, array)


def changed_constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Constants changed as arrays, small ones as attributes are."""
    values = _input_values(stretch, node)
    constants = [index for index in values if node.input[index] in stretch.context.constants]
    for index in constants:
        if values[index].size <= _SMALL:
            yield from _small_constant_edits(place, _label_of_input(stretch, node, index), index, values[index])
    for index in constants:
        yield from _input_change_edits(place, _label_of_input(stretch, node, index), index, values[index], len(values))


def changed_input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """What a node reads of others changed as arrays."""
    values = _input_values(stretch, node)
    for index, array in values.items():
        if node.input[index] not in stretch.context.constants:
            yield from _input_change_edits(place, _label_of_input(stretch, node, index), index, array, len(values))


def _input_values(stretch: ComputedStretch, node: onnx.NodeProto) -> dict[int, np.ndarray]:
    found = {index: stretch.value(0, name) for index, name in enumerate(node.input) if name}
    return {index: array for index, array in found.items() if array is not None}


def _label_of_input(stretch: ComputedStretch, node: onnx.NodeProto, index: int) -> str:
    schema = schema_of(node, stretch.context.opsets)
    return input_label(node, index, schema, constant=node.input[index] in stretch.context.constants)


def _edit_of_input(place: int, words: str, bits: float, index: int, change: Change | np.ndarray | None) -> StretchEdit:
    return StretchEdit(words=words, bits=bits, at=place, before=_replace_input(index, change))


def _replace_input(index: int, new: Change | np.ndarray | None) -> Callable[[Arrays], Arrays]:
    def before(arrays: Arrays) -> Arrays:
        old = arrays[index] if index < len(arrays) else None
        made = new if not callable(new) else None if old is None else new(old)
        found = [made if place == index else array for place, array in enumerate(arrays)]
        while found and found[-1] is None:
            found.pop()
        return found

    return before


def _exchange_inputs(one: int, other: int) -> Callable[[Arrays], Arrays]:
    order = {one: other, other: one}
    return lambda arrays: [arrays[order.get(index, index)] for index in range(len(arrays))]


def _copy_input(source: int, target: int) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [arrays[source] if index == target else array for index, array in enumerate(arrays)]


def _small_constant_edits(place: int, label: str, index: int, array: np.ndarray) -> Iterator[StretchEdit]:
    flat = array.ravel().tolist()
    found: list[list[Any]] = []
    if array.size == 1 and array.dtype.kind == "f":
        found = [[value] for value in reals_near(flat[0])]
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
        yield _edit_of_input(place, words, 4 + math.log2(len(found)), index, made)


def _other_tensor_edits(
    stretch: ComputedStretch, place: int, node: onnx.NodeProto, label: str, index: int, array: np.ndarray
) -> Iterator[StretchEdit]:
    """Another tensor of the same shape and type in the place of an input."""
    alike = [
        name
        for name in (*stretch.context.worlds[0], *stretch.context.constants)
        if name != node.input[index] and _is_alike(stretch.value(0, name), array)
    ][:_MOST_ALIKE]
    for name in alike:
        yield StretchEdit(
            words=f"{name!r} in place of {label}",
            bits=6 + math.log2(len(alike)),
            whole=lambda one, sample, n=name: one.run(
                sample, _edit_of_input(place, "", 0, index, _known_value(one, sample, n))
            ),
        )


def _is_alike(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and one.shape == other.shape and one.dtype == other.dtype


def _known_value(stretch: ComputedStretch, sample: int, name: str) -> np.ndarray:
    array = stretch.value(sample, name)
    if array is None:
        raise KeyError(name)
    return array


def _input_change_edits(place: int, label: str, index: int, array: np.ndarray, count: int) -> Iterator[StretchEdit]:
    if array.size > 1:
        every = list(changes_of(array))
        for words, change in every:
            yield _edit_of_input(place, f"{label} {words}", 5 + math.log2(len(every) * count), index, change)
        if array.dtype.kind == "f":
            for name, function in FUNCTIONS.items():
                bits = 6 + math.log2(len(FUNCTIONS))
                through: Change = lambda a, f=function: f(a.astype(np.float64)).astype(a.dtype)  # noqa: E731
                yield _edit_of_input(place, f"{name} of {label}", bits, index, through)
    elif array.dtype.kind == "f":
        for name in FORMATS:
            made = round_to_format(name)(array)
            words = f"{label} rounded to {name}: {float(array.ravel()[0]):.4g} becomes {float(made.ravel()[0]):.4g}"
            yield _edit_of_input(place, words, 7, index, made)


def joint_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """One change of several constants at once: the order of gates, a layout, a format."""
    constants = stretch.context.constants
    arrays = {
        index: constants[name]
        for index, name in enumerate(node.input)
        if name in constants and constants[name].size > 1 and constants[name].dtype.kind in "fiu"
    }
    if len(arrays) < 2:
        return
    each = {index: dict(changes_of(array)) for index, array in arrays.items()}
    for words in dict.fromkeys(itertools.chain.from_iterable(each.values())):
        having = [index for index in each if words in each[index]]
        if len(having) > 1:
            bits = 6 + math.log2(len(each[having[0]]))
            together = {index: each[index][words] for index in having}
            yield StretchEdit(
                words=f"constants {having} all {words}", bits=bits, at=place, before=_change_each(together)
            )
    yield from _gate_order_edits(place, arrays)


def _change_each(by_index: Mapping[int, Change]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: [
        by_index[index](array) if index in by_index and array is not None else array
        for index, array in enumerate(arrays)
    ]


def _gate_order_edits(place: int, arrays: Mapping[int, np.ndarray]) -> Iterator[StretchEdit]:
    """Blocks of one axis of all constants that have it in another order, those twice as long in both halves."""
    for axis in range(max(array.ndim for array in arrays.values())):
        length = min(array.shape[axis] for array in arrays.values() if array.ndim > axis)
        fitting = [i for i, a in arrays.items() if a.ndim > axis and a.shape[axis] in (length, 2 * length)]
        for count in (2, 3, 4) if len(fitting) > 1 else ():
            if count not in blocks_of(length):
                continue
            for order in list(itertools.permutations(range(count)))[1:]:

                def change(
                    array: np.ndarray, axis: int = axis, order: tuple[int, ...] = order, n: int = length
                ) -> np.ndarray:
                    halves = np.split(array, array.shape[axis] // n, axis)
                    blocks = [np.split(half, len(order), axis)[index] for half in halves for index in order]
                    return np.concatenate(blocks, axis)

                yield StretchEdit(
                    words=f"{count} blocks (gates) of constants {fitting} in the order {list(order)}",
                    bits=7 + math.log2(math.factorial(count)),
                    at=place,
                    before=_change_each(dict.fromkeys(fitting, change)),
                )


def fitted_input_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Inputs scaled or offset by a fitted amount."""
    if not stretch.same_shape:
        return
    values = {i: a for i, a in _input_values(stretch, node).items() if a.dtype.kind == "f" and a.size}
    for index, array in values.items():
        label = _label_of_input(stretch, node, index)
        # What the layer reads was seen; its constants were not.
        least = 6 if node.input[index] in stretch.context.constants else 7
        size = _typical_size(array)
        scaled = _fit_amount(
            stretch, lambda by, i=index: _edit_of_input(place, "", 0, i, lambda a: (a * (1 + by)).astype(a.dtype)), 0.05
        )
        if scaled is not None:
            factor, bits = round_to_nice(1 + scaled)
            said = f"{label} scaled by {factor:.6g}"
            made = _edit_of_input(place, said, least + bits, index, lambda a, f=factor: (a * f).astype(a.dtype))
            yield StretchEdit(words=said, bits=least + bits, at=place, before=made.before, numbers={"factor": factor})
        offset = _fit_amount(
            stretch,
            lambda by, i=index: _edit_of_input(place, "", 0, i, lambda a: (a + by).astype(a.dtype)),
            0.05 * size,
        )
        if offset is not None:
            shift, bits = round_to_nice(offset)
            said = f"{shift:.6g} added to {label}"
            made = _edit_of_input(place, said, least + bits, index, lambda a, s=shift: (a + s).astype(a.dtype))
            yield StretchEdit(words=said, bits=least + bits, at=place, before=made.before, numbers={"offset": shift})


def near_constant_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """A constant near by added to an input, or multiplied with it."""
    values = {i: a for i, a in _input_values(stretch, node).items() if a.dtype.kind == "f" and a.size}
    constants = {n: a for n, a in stretch.context.constants.items() if a.dtype.kind == "f" and a.size}
    for index, array in values.items():
        for name, other in constants.items():
            if name == node.input[index]:
                continue
            yield from _edit_with_constant(place, index, array, name, other, 8 + math.log2(len(constants) + 1))


def fitted_attribute_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Attributes that are numbers (epsilon, alpha, beta) at a fitted value."""
    schema = schema_of(node, stretch.context.opsets)
    names = {one.name for one in node.attribute if one.type == REAL}
    names |= set() if schema is None else {n for n, spec in schema.attributes.items() if int(spec.type) == REAL}
    for name in sorted(names) if stretch.same_shape else ():
        given = attribute_value(node, name)
        now = default_of(schema, name) if given is None else given
        if now is None:
            continue

        def edit(by: float, name: str = name, now: float = now) -> StretchEdit:
            return StretchEdit(words="", bits=0, at=place, node=changed_node(node, name, now + by, REAL))

        # A tenth of an epsilon of 1e-12 moves nothing that FP32 can show.
        for step in dict.fromkeys((0.1 * abs(now) or 0.1, max(0.1 * abs(now), _LEAST_STEP))):
            amount = _fit_amount(stretch, edit, step, _MANY_FITTINGS)
            if amount is None:
                continue
            value, bits = round_to_nice(now + amount)
            yield StretchEdit(
                words=f"attribute {name} {value:.6g} (fitted) in place of {now:.6g}",
                bits=5 + bits,
                at=place,
                node=changed_node(node, name, value, REAL),
                numbers={name: value},
            )


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
            yield _edit_of_input(place, words, bits, index, lambda a, o=shaped, s=sign: (a + s * o).astype(a.dtype))
        words = f"input {index} multiplied by {name!r}"
        yield _edit_of_input(place, words, bits, index, lambda a, o=shaped: (a * o).astype(a.dtype))


def _typical_size(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)].astype(np.float64)
    return (float(np.sqrt(np.square(finite).mean())) if finite.size else 1.0) or 1.0


def _fit_amount(
    stretch: ComputedStretch, edit: Callable[[float], StretchEdit], step: float, turns: int = _FITTINGS
) -> float | None:
    """The amount of a change of one number that leaves least, from no change on; None where it cannot be run."""
    chosen = stretch.fitted_on & np.isfinite(stretch.found[0])
    amount = 0.0
    try:
        for _ in range(turns):
            here, beside = (stretch.stored(stretch.run(0, edit(at))) for at in (amount, amount + step))
            slope = (beside - here) / step
            used = chosen & np.isfinite(slope)
            squares = float(np.dot(slope[used], slope[used]))
            if not squares:
                return None
            change = float(np.dot(slope[used], (stretch.found[0] - here)[used])) / squares
            amount += change
            if abs(change) < 1e-4 * abs(amount):
                break
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - what cannot be run explains nothing
        return None
    return amount


def row_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """One index or block of one axis of an input scaled or offset by a fitted amount."""
    if not stretch.same_shape:
        return
    chosen = stretch.fitted_on & np.isfinite(stretch.found[0]) & np.isfinite(stretch.replayed[0])
    error = (stretch.found[0] - stretch.replayed[0])[chosen]
    for index, array in _input_values(stretch, node).items():
        if array.dtype.kind != "f" or array.size < 2:
            continue
        size = _typical_size(array)
        for axis, length in enumerate(array.shape):
            parts = [(f"index {row}", slice(row, row + 1)) for row in range(length) if 1 < length <= _MOST_ROWS]
            parts += [
                (f"block {block} of {count}", slice(block * length // count, (block + 1) * length // count))
                for count in blocks_of(length)
                for block in range(count)
            ]
            for (said, rows), add in itertools.product(parts, (False, True)):
                change = _edit_moving_rows(place, index, axis, rows, add=add)
                step = 0.1 * size if add else 0.1
                try:
                    beside = stretch.stored(stretch.run(0, change(step)))
                except MemoryError:
                    raise
                except Exception:  # noqa: BLE001 - what cannot be run explains nothing
                    break
                slope = (as_float64(beside) - stretch.replayed[0])[chosen] / step
                slope, rest = slope[np.isfinite(slope)], error[np.isfinite(slope)]
                squares = float(np.dot(slope, slope))
                if not squares or np.dot(slope, rest) ** 2 < _ALONG * squares * float(np.dot(rest, rest)):
                    continue
                amount = _fit_amount(stretch, change, step)
                if amount is None:
                    continue
                value, bits = round_to_nice(amount if add else 1 + amount)
                where = f"{said} of axis {axis} of {_label_of_input(stretch, node, index)}"
                words = f"{value:.6g} added to {where}" if add else f"{where} scaled by {value:.6g}"
                made = change(value if add else value - 1)
                yield StretchEdit(
                    words=words,
                    bits=7 + bits + math.log2(len(parts)),
                    at=place,
                    before=made.before,
                    numbers={"offset" if add else "factor": value},
                )


def _edit_moving_rows(place: int, index: int, axis: int, rows: slice, *, add: bool) -> Callable[[float], StretchEdit]:
    cut = (slice(None),) * axis + (rows,)

    def edit(amount: float) -> StretchEdit:
        def change(array: np.ndarray) -> np.ndarray:
            moved = array.copy()
            moved[cut] = moved[cut] + amount if add else moved[cut] * (1 + amount)
            return moved

        return _edit_of_input(place, "", 0, index, change)

    return edit
