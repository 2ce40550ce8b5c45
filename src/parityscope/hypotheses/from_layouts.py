"""What is laid out otherwise than it is read: square constants, a recurrent layer's gates and directions, axes of a Reshape.

Formats and frameworks differ in it as they do in attributes, no shape tells, and no slope leads to so large a change.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from parityscope.hypotheses.changes import BlockOrder
from parityscope.hypotheses.edits import StretchEdit
from parityscope.hypotheses.from_inputs import edit_of_input, edit_of_inputs, gates_of, label_of_input
from parityscope.hypotheses.schemas import schema_of
from parityscope.operators import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import onnx

    from parityscope.hypotheses.edits import Arrays
    from parityscope.hypotheses.from_inputs import Change
    from parityscope.hypotheses.stretch import ComputedStretch

_GATE_BITS = 1.5  # beside which of the orders it is; chosen, as the layers that have gates are few
_LAYOUT_BITS = 5.0  # of a square constant transposed, say; chosen, as an attribute (transB) says the same


def layout_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Edits of the layout of what `node`, the step at `place`, reads."""
    constants = stretch.context.constants
    arrays = {index: constants[name] for index, name in enumerate(node.input) if name in constants}
    count = len(gates_of(node))
    if count > 1:
        # States, lengths and peepholes have other numbers of blocks, if any.
        weights = [index for index in arrays if 0 < index < len(OPERATORS[node.op_type].inputs)]
        length = min((arrays[index].shape[1] for index in weights), default=0)
        for order in itertools.permutations(range(count)) if length and length % count == 0 else ():
            if list(order) != sorted(order):
                bits = _GATE_BITS + math.log2(math.factorial(count))
                yield edit_of_gates(stretch, place, node, weights, BlockOrder(1, order, length), bits)
    if any(one.name == "direction" and one.s == b"bidirectional" for one in node.attribute):
        # Whatever a direction has its own of: scales and zero points of quantized weights too. Lengths are of the batch.
        own = [index for index, array in arrays.items() if array.ndim and array.dtype != np.int32]
        turned: Change = lambda array: np.ascontiguousarray(array[::-1])  # noqa: E731
        if own and all(len(arrays[index]) == 2 for index in own):
            yield edit_of_inputs(place, "its two directions exchanged", _LAYOUT_BITS, dict.fromkeys(own, turned))
    for index, array in arrays.items():
        for one, other in itertools.combinations(range(array.ndim), 2):
            if array.dtype.kind == "f" and array.shape[one] == array.shape[other] > 1:
                words = f"{label_of_input(stretch, node, index)} transposed (axes {one} and {other})"
                swapped: Change = lambda a, x=one, y=other: np.ascontiguousarray(a.swapaxes(x, y))  # noqa: E731
                yield edit_of_input(place, words, _LAYOUT_BITS, index, swapped)
    if node.op_type in {"Reshape", "Flatten"}:
        yield from _axes_edits(stretch, place, node)


def edit_of_gates(
    stretch: ComputedStretch, place: int, node: onnx.NodeProto, weights: Sequence[int], order: BlockOrder, bits: float
) -> StretchEdit:
    """The gates of some of a recurrent layer's weights, by place, in another order."""
    schema, letters = schema_of(node, stretch.context.opsets), gates_of(node)
    names = ", ".join(str(index) if schema is None else schema.inputs[index].name for index in weights)
    words = f"the gates of {names} in the order {', '.join(letters[gate] for gate in order.order)}"
    return edit_of_inputs(place, words, bits, dict.fromkeys(weights, order))


def _axes_edits(stretch: ComputedStretch, place: int, node: onnx.NodeProto) -> Iterator[StretchEdit]:
    """Axes that a Reshape merges or splits, in Fortran's order."""
    read, given = stretch.value(0, node.input[0]), stretch.plain.get(node.output[0], stretch.base[0])
    if read is None or read.size != given.size:
        return
    for first, last in _regrouped_axes(read.shape, given.shape):
        yield StretchEdit(
            words=f"axes {list(range(*first))} of the input gone through with the first fastest",
            bits=_LAYOUT_BITS,
            at=place,
            before=_read_first_fastest(first, [given.shape[axis] for axis in range(*last)]),
        )


def _regrouped_axes(read: Sequence[int], given: Sequence[int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Runs of axes that become one another, where one side has several longer than one: (first, behind the last) of both."""
    here = there = 0
    while here < len(read) and there < len(given):
        begun = here, there
        mine, its = read[here], given[there]
        here, there = here + 1, there + 1
        while mine != its:
            if mine < its and here < len(read):
                mine, here = mine * read[here], here + 1
            elif there < len(given):
                its, there = its * given[there], there + 1
            else:
                return
        longer = [sum(size > 1 for size in sizes) for sizes in (read[begun[0] : here], given[begun[1] : there])]
        if max(longer) > 1:
            yield (begun[0], here), (begun[1], there)


def _read_first_fastest(axes: tuple[int, int], sizes: Sequence[int]) -> Callable[[Arrays], Arrays]:
    """The input so laid out that what the step makes of it is in Fortran's order along these axes."""

    def before(arrays: Arrays) -> Arrays:
        data = arrays[0]
        if data is None:
            return arrays
        first, last = axes
        rest = data.shape[:first], data.shape[last:]
        if math.prod(sizes) != math.prod(data.shape[first:last]):
            return arrays
        turned = [*range(first), *range(last - 1, first - 1, -1), *range(last, data.ndim)]
        flat = data.transpose(turned).reshape(*rest[0], *sizes[::-1], *rest[1])
        back = [*range(first), *range(first + len(sizes) - 1, first - 1, -1), *range(first + len(sizes), flat.ndim)]
        return [np.ascontiguousarray(flat.transpose(back)).reshape(data.shape), *arrays[1:]]

    return before
