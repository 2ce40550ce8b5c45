"""What the outputs of an ONNX graph decide, read from the operators that make them, and from what a user says of them.

An output of Softmax decides which class is the best along its axis, one of Sigmoid which numbers are above a half; one of ArgMax,
and the places that TopK gives, hold choices between scores that stay inside. What follows (Cast, Identity, Transpose) is looked
through. A Softmax that the network itself goes on to multiply with gives weights of attention: nobody decides by them. Of an
output that ends otherwise its values may show what it decides (`comparison.decisions`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.operators import of_kind, with_trait
from parityscope.plain_numbers import plain_number
from parityscope.records import CountedOutput, DecisionRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from parityscope.records import Policy, ValueInfo

_COUNTS, _SORTS = with_trait("counts"), with_trait("sorts")
_PASSES_ON = with_trait("passes on")
_SOFTMAX = of_kind("softmax")
_ALONG_THE_AXIS = 13  # the opset from which on a Softmax is one along its axis, and not over all axes behind it
_STATED = re.compile(r"(?P<kind>classes|ctc|top)(?P<number>\d+)?(:(?P<axis>-?\d+))?")
_BOX, _MAP = 4, 4  # numbers of a box; axes of a map, whose values tell a mask from others
_FORMS = "a number (what is above it), classes, top3, ctc or none"


def rules_of_graph(graph: onnx.GraphProto, opset: int) -> dict[str, DecisionRule]:
    """By output what it decides; those are left out whose graph does not say it."""
    makers = {name: node for node in graph.node for name in node.output if name}
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    found = {}
    for output in graph.output:
        sizes = [one.dim_value for one in output.type.tensor_type.shape.dim]
        rule = _rule_of_output(output.name, makers, readers, opset, len(sizes))
        if rule is not None and not (rule.kind == "threshold" and _are_no_sides(sizes)):
            found[output.name] = rule
    return found


def counted_outputs(graph: onnx.GraphProto) -> tuple[CountedOutput, ...]:
    """Outputs with as many rows as values decide: behind what keeps rows, with axes that are as long as no input's."""
    lengths = {one.dim_param for value in graph.input for one in value.type.tensor_type.shape.dim if one.dim_param}
    counted, sorted_ = (_values_behind(graph, kind) for kind in (_COUNTS, _SORTS))
    axes = {value.name: _free_axes(value, lengths) for value in graph.output if value.name in counted}
    return tuple(CountedOutput(name=name, axes=free, sorted=name in sorted_) for name, free in axes.items() if free)


def _values_behind(graph: onnx.GraphProto, operators: frozenset[str]) -> set[str]:
    """The values of the main graph that some operators reach."""
    reached: set[str] = set()
    for node in graph.node:
        if _holds(node, operators) or reached.intersection(node.input):
            reached.update(node.output)
    return reached


def _holds(node: onnx.NodeProto, operators: frozenset[str]) -> bool:
    bodies = (each for one in node.attribute for each in (one.g, *one.graphs))
    return node.op_type in operators or any(_holds(inner, operators) for body in bodies for inner in body.node)


def _free_axes(value: onnx.ValueInfoProto, lengths: set[str]) -> tuple[int, ...]:
    """The axes whose lengths are neither said nor those of an input's; of a shape that is not said the first."""
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return (0,)
    sizes = enumerate(declared.shape.dim)
    return tuple(axis for axis, one in sizes if not one.HasField("dim_value") and one.dim_param not in lengths)


def _are_no_sides(sizes: Sequence[int]) -> bool:
    """Whether a Sigmoid gives the corners of boxes, or maps: of an image or a depth no number is above or below."""
    return sizes[-1:] == [_BOX] or len(sizes) >= _MAP


def rules_of_outputs(
    outputs: Sequence[ValueInfo], read: Mapping[str, DecisionRule], policy: Policy
) -> dict[str, DecisionRule]:
    """By output what its graph says (`read`), or in place of it the user."""
    stated = dict(policy.decides)
    return {
        one.name: stated_rule(stated[one.name]) if one.name in stated else read.get(one.name, DecisionRule())
        for one in outputs
    }


def stated_rule(words: str) -> DecisionRule:
    """What a user says that is decided: "0.3", "classes", "classes:1" (the axis), "top3", "ctc", "ctc0" (the blank), "none".

    Raises:
        ParityError: it is none of these.
    """
    if words == "none":
        return DecisionRule(kind="none")
    if (found := _STATED.fullmatch(words)) is not None:
        kind, number = found["kind"], None if found["number"] is None else int(found["number"])
        axis = int(found["axis"] or -1)
        if kind == "ctc":
            return DecisionRule(kind="best", axis=axis, blank=number or 0)
        if kind == "top" and number:
            return DecisionRule(kind="best", axis=axis, top=number)
        if kind == "classes" and number is None:
            return DecisionRule(kind="best", axis=axis)
    above = plain_number(words)
    if math.isnan(above):
        raise ParityError(f"{words!r} is nothing that an output can decide", fix=f"write {_FORMS}")
    return DecisionRule(kind="threshold", at=above)


def _rule_of_output(
    name: str, makers: Mapping[str, onnx.NodeProto], readers: Mapping[str, list[str]], opset: int, rank: int
) -> DecisionRule | None:
    turned = list(range(rank))  # which axis of the value each axis of the output is
    node = makers.get(name)
    while node is not None and (node.op_type in _PASSES_ON or node.op_type == "Transpose"):
        if node.op_type == "Transpose":
            order = _ints_of(node, "perm") or list(range(rank))[::-1]
            turned = [order[axis] for axis in turned] if len(order) == rank else []
        name = node.input[0]
        node = makers.get(name)
    if node is None:
        return None
    if node.op_type in _SOFTMAX:
        if set(readers.get(name, ())) - _PASSES_ON - {"Transpose", "ArgMax", "TopK", "ReduceMax"}:
            return DecisionRule(kind="none")
        axis = _int_of(node, "axis", -1 if opset >= _ALONG_THE_AXIS else 1)
        flattened = opset < _ALONG_THE_AXIS and axis not in {-1, rank - 1}
        axis = axis % rank if rank else -1
        return None if flattened or axis not in turned else DecisionRule(kind="best", axis=turned.index(axis))
    if node.op_type == "Sigmoid":
        return DecisionRule(kind="threshold")
    scores = node.input[0] if node.input else ""
    straight = turned == list(range(rank))
    if node.op_type == "ArgMax" and straight and not _int_of(node, "select_last_index", 0):
        return DecisionRule(kind="best", axis=_int_of(node, "axis", 0), scores=scores)
    if node.op_type == "TopK" and straight and name == node.output[1] and _int_of(node, "largest", 1):
        return DecisionRule(kind="order", axis=_int_of(node, "axis", -1), scores=scores)
    return None


def _int_of(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(one.i) for one in node.attribute if one.name == name), default)


def _ints_of(node: onnx.NodeProto, name: str) -> list[int]:
    return next((list(one.ints) for one in node.attribute if one.name == name), [])
