"""Puts the roundings that a `Plan` asks for into a graph.

A tensor called `x` keeps its name for what is stored: the rounded numbers. What its producer computed becomes
`x::exact`. Inputs of the model keep their names unrounded (they are what is fed) and are read as `x::rounded`. What a
product takes rounded is not stored: `x::tf32` beside `x`. Constants are rounded here, in numpy, and get a copy where
some of their readers take them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic._graphs import (
    all_values,
    constant_like,
    constant_tensor,
    drop_unused,
    feed,
    give_back,
    place_behind,
)
from parityscope.arithmetic.primitives import Rewriting, rounding_nodes
from parityscope.arithmetic.rounding import round_to

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.sites import Plan

__all__ = ["Inserted", "insert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """The names of what was rounded, each with the short name of its format."""

    tensors: dict[str, str] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    operands: dict[str, str] = field(default_factory=dict)


def insert(plan: Plan, settled: frozenset[ir.Value], work: Rewriting) -> Inserted:
    """Edits the model of `work`, to whose values and nodes `plan` refers, in place.

    `settled` are values that hold rounded numbers anyway.
    """
    done = Inserted()
    for (node, index), array in plan.constants.items():
        _feed_array(node, index, array, done, work)
    stored = [value for value in all_values(work.model) if value in plan.storage and _is_stored(value, plan)]
    for value in stored:
        number_format = plan.storage[value]
        constant = constant_tensor(value) is not None
        (done.weights if constant else done.tensors)[str(value.name)] = number_format.name
        if constant:
            _store_constant(value, number_format, plan, work)
        elif value not in settled:
            _store_tensor(value, number_format, plan, work)
    for value, number_format, uses in _operands(plan):
        constant = constant_tensor(value) is not None
        (done.weights if constant else done.operands)[str(value.name)] = number_format.name
        if constant:
            _feed_constant(value, number_format, uses, work)
        else:
            operand = work.names.fresh(value.name, number_format.name)
            nodes = rounding_nodes(value, number_format, operand, work)
            place_behind(value, nodes)
            feed(uses, nodes[-1].outputs[0])
    return done


def _is_stored(value: ir.Value, plan: Plan) -> bool:
    """Whether anything reads the stored value; what nothing reads is stored too."""
    return not value.uses() or value.is_graph_output() or bool(_rounded_uses(value, plan))


def _store_tensor(value: ir.Value, number_format: Format, plan: Plan, work: Rewriting) -> None:
    """Rounds what a node computes, under the tensor's own name; or what enters a graph, under a new one."""
    name = str(value.name)
    computed = value.producer() is not None
    uses = _rounded_uses(value, plan)
    if computed:
        value.name = work.names.fresh(name, "exact")
    rounded = name if computed else work.names.fresh(name, "rounded")
    nodes = rounding_nodes(value, number_format, rounded, work)
    place_behind(value, nodes)
    feed(uses, nodes[-1].outputs[0])
    if computed:
        give_back(value, nodes[-1].outputs[0])


def _store_constant(value: ir.Value, number_format: Format, plan: Plan, work: Rewriting) -> None:
    """Rounds a constant; inputs that read it exactly keep the old one under a new name."""
    rounded = _rounded(value, number_format, work)
    if rounded is None:
        return
    name = str(value.name)
    value.name = work.names.fresh(name, "exact")
    stored = constant_like(value, rounded, name)
    feed(_rounded_uses(value, plan), stored)
    give_back(value, stored)
    drop_unused(value)


def _feed_constant(value: ir.Value, number_format: Format, uses: list[tuple[ir.Node, int]], work: Rewriting) -> None:
    """Gives products a rounded copy of a constant, which takes the constant's name where nothing else reads it."""
    rounded = _rounded(value, number_format, work)
    if rounded is None:
        return
    name = str(value.name)
    copy = constant_like(value, rounded, work.names.fresh(name, number_format.name))
    feed(uses, copy)
    if drop_unused(value):
        copy.name = name


def _feed_array(node: ir.Node, index: int, array: np.ndarray, done: Inserted, work: Rewriting) -> None:
    """Lets one input read `array` instead of its constant, under the constant's name where nothing else reads that."""
    value = node.inputs[index]
    tensor = None if value is None else constant_tensor(value)
    if value is None or tensor is None:
        raise ValueError(f"input {index} of {node.name} is not a constant")
    name = str(value.name)
    done.weights[name] = "folded"
    if np.array_equal(tensor.numpy(), array, equal_nan=True):
        return
    if len(value.uses()) == 1 and not value.is_graph_output():
        value.name = work.names.fresh(name, "exact")
        copy = constant_like(value, array, name)
    else:
        copy = constant_like(value, array, work.names.fresh(name, "folded"))
    feed([(node, index)], copy)
    drop_unused(value)


def _operands(plan: Plan) -> list[tuple[ir.Value, Format, list[tuple[ir.Node, int]]]]:
    """The inputs of products grouped by what they read and round to, so that each is rounded once."""
    grouped: dict[tuple[ir.Value, Format], list[tuple[ir.Node, int]]] = {}
    for (node, index), number_format in plan.operands.items():
        value = node.inputs[index]
        if value is not None:
            grouped.setdefault((value, number_format), []).append((node, index))
    return [(value, number_format, uses) for (value, number_format), uses in grouped.items()]


def _rounded_uses(value: ir.Value, plan: Plan) -> list[tuple[ir.Node, int]]:
    return [(node, index) for node, index in value.uses() if plan.reads_rounded(node, index)]


def _rounded(value: ir.Value, number_format: Format, work: Rewriting) -> np.ndarray | None:
    """The rounded elements of a constant; None when rounding changes none of them."""
    tensor = constant_tensor(value)
    if tensor is None:
        return None
    exact = tensor.numpy()
    rounded = round_to(exact, number_format, overflow=work.overflow)
    # As bits: rounding keeps NaN and the sign of zero, and numpy's equal_nan copies both arrays.
    bits = f"u{exact.dtype.itemsize}"
    return None if np.array_equal(exact.view(bits), rounded.view(bits)) else rounded
