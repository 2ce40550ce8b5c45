"""Axes, channels or operands in another order.

A Transpose with another permutation of the same result shape, or a mere reinterpretation of memory (Reshape) in its
place; a Concat in another order; Softmax and ArgMax over another axis; the operands of Sub, Div, Pow and MatMul exchanged;
the channels of what comes in or goes out reversed (BGR for RGB); height and width of a square exchanged.

Sources: ONNX operators; layout and channel-order faults are the most frequent ones in public reports of users' own code
(docs/explanations.md).
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._attributes import integer, integers
from parityscope.arithmetic.hypotheses import Context, Hypothesis, Variant
from parityscope.arithmetic.hypotheses._edits import behind, constant, gives_output, insert, setting, substitute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

    from parityscope.arithmetic.hypotheses import Rewrite

__all__ = ["HYPOTHESIS"]

_ALONG_AXIS = frozenset({"ArgMax", "ArgMin", "CumSum", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax"})
_ONE_SIDED = frozenset({"Div", "MatMul", "Pow", "Sub"})
_MOST_JOINED = 4  # 24 orders; of more inputs only the reversed order is tried


def _applies(node: ir.Node, _graph: ir.Graph) -> bool:
    return not node.domain


def _variants(node: ir.Node, context: Context) -> Iterator[Variant]:
    shapes = [None if value is None else context.value(value).shape for value in node.inputs]
    if node.op_type == "Transpose" and shapes[0]:
        yield from _transposed(node, shapes[0])
    if node.op_type == "Concat":
        yield from _joined(node)
    if node.op_type in _ALONG_AXIS and shapes[0]:
        yield from _axes(node, len(shapes[0]), context)
    if node.op_type in _ONE_SIDED and _exchangeable(node, shapes, context):
        yield Variant(words=f"the operands of {node.op_type} are exchanged", rewrite=_exchange)
    if node.op_type not in {"Concat", "Transpose"} and shapes and shapes[0] and _is_float(node, context):
        yield from _reversed_inputs(shapes[0])
    if gives_output(node, context.model.graph):
        yield from _reversed_output(context)


def _exchangeable(node: ir.Node, shapes: Sequence[tuple[int, ...] | None], context: Context) -> bool:
    """Whether the operation is defined the other way round: matrices square and alike, integers not divided by zero."""
    if node.op_type != "MatMul":
        first = None if node.inputs[0] is None else context.value(node.inputs[0])
        return first is not None and (first.dtype.kind == "f" or bool((first != 0).all()))
    mine, its = shapes[0], shapes[1]
    return mine is not None and mine == its and len(mine) > 1 and mine[-1] == mine[-2]


def _is_float(node: ir.Node, context: Context) -> bool:
    source = node.inputs[0]
    return source is not None and context.value(source).dtype.kind == "f" and not source.is_initializer()


def _transposed(node: ir.Node, shape: tuple[int, ...]) -> Iterator[Variant]:
    rank = len(shape)
    current = integers(node, "perm", tuple(range(rank))[::-1])
    result = tuple(shape[axis] for axis in current)
    for perm in permutations(range(rank)):
        if perm != current and tuple(shape[axis] for axis in perm) == result:
            yield Variant(
                words=f"axes in the order {list(perm)} and not {list(current)}",
                rewrite=setting("perm", perm),
            )
    inverse = tuple(int(axis) for axis in np.argsort(current))
    if inverse != current:
        yield Variant(words="the memory is read in the other layout without moving it", rewrite=_reinterpret(result))


def _reinterpret(shape: tuple[int, ...]) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        wanted = constant(model, np.array(shape, np.int64), f"{node.outputs[0].name}::shape")
        substitute(model, node, insert(node, "Reshape", [node.inputs[0], wanted]))

    return rewrite


def _joined(node: ir.Node) -> Iterator[Variant]:
    count = len(node.inputs)
    plain = tuple(range(count))
    orders = permutations(plain) if count <= _MOST_JOINED else [plain[::-1]]
    for order in orders:
        if order != plain:
            yield Variant(words=f"joined in the order {list(order)}", rewrite=_ordered(order))


def _ordered(order: tuple[int, ...]) -> Rewrite:
    def rewrite(_: ir.Model, node: ir.Node, __: float) -> None:
        values = list(node.inputs)
        for position, source in enumerate(order):
            node.replace_input_with(position, values[source])

    return rewrite


def _axes(node: ir.Node, rank: int, context: Context) -> Iterator[Variant]:
    if node.op_type == "CumSum":
        return
    default = 0 if node.op_type.startswith("Arg") else (-1 if context.model.opset_imports.get("", 0) >= 13 else 1)
    current = integer(node, "axis", default) % rank
    for axis in range(rank):
        if axis != current:
            yield Variant(
                words=f"{node.op_type} over axis {axis} and not {current}",
                rewrite=setting("axis", axis),
            )


def _exchange(_: ir.Model, node: ir.Node, __: float) -> None:
    first, second = node.inputs[0], node.inputs[1]
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)


def _reversed_axis(model: ir.Model, node: ir.Node, value: ir.Value | None, axis: int) -> ir.Value:
    name = f"{node.outputs[0].name}::reverse"
    numbers = [constant(model, np.array([each], np.int64), name) for each in (-1, np.iinfo(np.int64).min, axis, -1)]
    return insert(node, "Slice", [value, *numbers])


def _reversed_inputs(shape: tuple[int, ...]) -> Iterator[Variant]:
    for axis in sorted({1, len(shape) - 1} if len(shape) > 1 else {0}):
        if shape[axis] < 2:
            continue

        def rewrite(model: ir.Model, node: ir.Node, _: float, axis: int = axis) -> None:
            node.replace_input_with(0, _reversed_axis(model, node, node.inputs[0], axis))

        yield Variant(words=f"what comes in is reversed along axis {axis}", rewrite=rewrite)


def _reversed_output(context: Context) -> Iterator[Variant]:
    shape = context.replayed.shape
    for axis in sorted({1, len(shape) - 1} if len(shape) > 1 else set()):
        if shape[axis] >= 2:
            yield Variant(words=f"the result is reversed along axis {axis}", rewrite=_reverse_behind(axis))
    if len(shape) >= 2 and shape[-1] == shape[-2] > 1:
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        yield Variant(
            words="the last two axes of the result are exchanged",
            rewrite=lambda model, node, _: _moved(model, node, perm),
        )


def _moved(model: ir.Model, node: ir.Node, perm: list[int]) -> None:
    behind(model, node, "Transpose", (), {"perm": perm})


def _reverse_behind(axis: int) -> Rewrite:
    def rewrite(model: ir.Model, node: ir.Node, _: float) -> None:
        name = f"{node.outputs[0].name}::reverse"
        numbers = [constant(model, np.array([each], np.int64), name) for each in (-1, np.iinfo(np.int64).min, axis, -1)]
        behind(model, node, "Slice", numbers)

    return rewrite


HYPOTHESIS = Hypothesis(
    name="axis_order",
    title="Axes or channels in another order",
    family="semantic",
    applies=_applies,
    variants=_variants,
)
