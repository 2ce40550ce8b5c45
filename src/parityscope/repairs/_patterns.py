"""Normalizations, Softmax and GELU that exporters take apart, found from their last node backwards.

In: a node. Out: what it is the last node of, or None. Every form demands that the square, the sum and the root are taken
of one value; factors may stand in either order.

Sources: Ba, Kiros, Hinton, "Layer Normalization", 2016; Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019;
Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016 (both forms); the function bodies of LayerNormalization (opset 17),
Gelu (20) and RMSNormalization (23) in the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import input_at
from parityscope.light_dataclasses import dataclass
from parityscope.repairs._editing import insert_before, scalar_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


# The opset from which a reduction reads its axes as an input.
_AXES_AS_INPUT = {"ReduceMax": 18, "ReduceSum": 13}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotient:
    """source / sqrt(mean(source^2) + epsilon), ending in `last`.

    `square`, `reduce` and `root` are the nodes that square, sum up or average, and take the root; `guard` is the
    addition of `epsilon`, None where there is none. `inverse`: the root is inverted and then multiplied.
    """

    source: ir.Value
    square: ir.Node
    reduce: ir.Node
    guard: ir.Node | None
    epsilon: float
    root: ir.Node
    last: ir.Node

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """All nodes of the form that were found, first to last."""
        held = (self.square, self.reduce, self.guard, self.root, self.last)
        return tuple(node for node in held if node is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """exp(source) / sum(exp(source)), ending in `last`; `below` is the value without its maximum taken off, if it was."""

    source: ir.Value
    below: ir.Value | None
    exponential: ir.Node
    total: ir.Node
    last: ir.Node


def producer_of(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """The node behind `value` if it is one of `operators`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type in operators and not node.domain else None


def both_operand_orders(node: ir.Node | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Both orders of the two inputs of a sum or product."""
    if node is not None and len(node.inputs) == 2:
        one, other = node.inputs
        if one is not None and other is not None:
            yield one, other
            yield other, one


def find_quotient(last: ir.Node) -> Quotient | None:
    """The normalization whose division is `last`."""
    if last.op_type == "Div":
        source, divisor = input_at(last, 0), input_at(last, 1)
        root = producer_of(divisor, "Sqrt", "Pow")
        return None if source is None else _quotient_over_root(source, root, 0.5, last)
    if last.op_type != "Mul":
        return None
    for source, factor in both_operand_orders(last):
        inverse = producer_of(factor, "Reciprocal", "Div")
        if inverse is not None and (inverse.op_type == "Reciprocal" or scalar_of(input_at(inverse, 0)) == 1.0):
            held = input_at(inverse, 0 if inverse.op_type == "Reciprocal" else 1)
            found = _quotient_over_root(source, producer_of(held, "Sqrt", "Pow"), 0.5, last)
        else:
            found = _quotient_over_root(source, producer_of(factor, "Pow"), -0.5, last)
        if found is not None:
            return found
    return None


def _quotient_over_root(source: ir.Value, root: ir.Node | None, power: float, last: ir.Node) -> Quotient | None:
    if root is None or (root.op_type == "Pow" and scalar_of(input_at(root, 1)) != power):
        return None
    guard = producer_of(input_at(root, 0), "Add")
    choices: list[tuple[ir.Value | None, float]] = [(input_at(root, 0), 0.0)] if guard is None else []
    for one, other in both_operand_orders(guard):
        epsilon = scalar_of(other)
        if epsilon is not None:
            choices.append((one, epsilon))
    for value, epsilon in choices:
        reduce = producer_of(value, "ReduceMean", "ReduceSum")
        square = producer_of(input_at(reduce, 0), "Pow", "Mul") if reduce is not None else None
        if reduce is not None and square is not None and _is_square_of(square, source):
            return Quotient(
                source=source, square=square, reduce=reduce, guard=guard, epsilon=epsilon, root=root, last=last
            )
    return None


def _is_square_of(node: ir.Node, source: ir.Value) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is source and node.inputs[1] is source
    return node.inputs[0] is source and scalar_of(input_at(node, 1)) == 2.0


def mean_removed(found: Quotient) -> tuple[ir.Value, ir.Node, ir.Node] | None:
    """(x, mean node, Sub node) if the source is x minus its mean over the same axes."""
    sub = producer_of(found.source, "Sub")
    if sub is None:
        return None
    mean = producer_of(sub.inputs[1], "ReduceMean")
    value = sub.inputs[0]
    same = mean is not None and mean.inputs[0] is value and chain_axes(mean) == chain_axes(found.reduce)
    return (value, mean, sub) if same and value is not None and mean is not None and chain_axes(mean) else None


def chain_axes(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of a reduction that keeps its dimensions; None where they are computed, all, or dropped."""
    return axes_of(node) if keeps_dims(node) else None


def keeps_dims(node: ir.Node) -> bool:
    """Whether a reduction leaves dimensions of 1 behind."""
    return bool(node.attributes.get_int("keepdims", 1))


def axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of a reduction; None where they are computed, or all."""
    from parityscope.repairs._editing import array_of

    attribute = node.attributes.get("axes")
    if attribute is not None:
        return tuple(attribute.as_ints())
    array = array_of(input_at(node, 1))
    return None if array is None or array.size == 0 else tuple(int(axis) for axis in array.ravel())


def find_softmax(last: ir.Node) -> Softmax | None:
    """The Softmax whose division is `last`."""
    exponential = producer_of(input_at(last, 0), "Exp") if last.op_type == "Div" else None
    total = producer_of(input_at(last, 1), "ReduceSum") if exponential is not None else None
    if exponential is None or total is None or total.inputs[0] is not exponential.outputs[0]:
        return None
    source = exponential.inputs[0]
    if source is None or chain_axes(total) is None:
        return None
    return Softmax(source=source, below=_maximum_off(source, total), exponential=exponential, total=total, last=last)


def _maximum_off(source: ir.Value, total: ir.Node) -> ir.Value | None:
    sub = producer_of(source, "Sub")
    top = producer_of(sub.inputs[1], "ReduceMax") if sub is not None else None
    if sub is None or top is None or top.inputs[0] is not sub.inputs[0] or chain_axes(top) != chain_axes(total):
        return None
    return sub.inputs[0]


def squared_by(node: ir.Node | None) -> ir.Value | None:
    """What a node squares, as Mul(x, x) or Pow(x, 2); None for any other node."""
    if node is None or node.domain or node.op_type not in {"Mul", "Pow"} or len(node.inputs) != 2:
        return None
    source, second = node.inputs
    squares = second is source if node.op_type == "Mul" else scalar_of(second) == 2.0
    return source if squares else None


def insert_reduction(
    model: ir.Model, before: ir.Node, operator: str, value: ir.Value, axes: tuple[int, ...], name: str
) -> ir.Value:
    """A reduction of `value` that keeps its dimensions, in front of `before`."""
    import onnx_ir as ir

    attributes = [ir.AttrInt64("keepdims", 1)]
    inputs = [value]
    if opset_of(model) >= _AXES_AS_INPUT[operator]:
        inputs.append(add_constant(model.graph, np.array(axes, np.int64), f"{name}::axes"))
    else:
        attributes.append(ir.AttrInt64s("axes", axes))
    return insert_before(before, operator, inputs, name, attributes, like=value)
