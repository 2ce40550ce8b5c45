"""Attention: a product, pointwise operators on the scores (scale, mask), Softmax, and a product with the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.matching import (
    POINTWISE,
    MatchedRegion,
    data_inputs,
    dominated_nodes,
    is_closed,
    is_static,
)
from parityscope.arithmetic.fusion.patterns import Pattern
from parityscope.operators import of_kind

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

_MOVES = frozenset({"Identity", "Dropout"})


def match(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The attention whose product with the values is `node`."""
    return _match_behind(node, order, _MOVES)


def match_guarded(node: ir.Node, order: dict[ir.Node, int]) -> MatchedRegion | None:
    """The same with what is done to each probability, such as `Where(IsNaN(p), 0, p)` for rows that are masked whole."""
    return _match_behind(node, order, _MOVES | POINTWISE | of_kind("logic"))


def _match_behind(node: ir.Node, order: dict[ir.Node, int], between: Collection[str]) -> MatchedRegion | None:
    """The attention whose product is `node`, with operators `between` the probabilities and it."""
    weights = node.inputs[0] if node.op_type == "MatMul" else None
    softmax = None if weights is None else weights.producer()
    nodes = [node]
    while softmax is not None and softmax.op_type in between and (above := dominated_nodes(softmax, between, order)):
        nodes.extend(above[0])
        softmax = above[1].producer()
    if softmax is None or softmax.op_type != "Softmax" or softmax.inputs[0] is None:
        return None
    nodes.append(softmax)
    scores = _score_nodes(softmax.inputs[0], order)
    if scores is None:
        return None
    members = tuple(sorted((*nodes, *scores), key=lambda each: order[each]))
    if not is_closed(members, node.outputs[0]):
        return None
    inside = {value for each in members for value in each.outputs}
    entries = dict.fromkeys(value for each in members for value in data_inputs(each) if value not in inside)
    return MatchedRegion(kind="Attention", nodes=members, entries=tuple(entries), output=node.outputs[0])


def _score_nodes(value: ir.Value, order: dict[ir.Node, int]) -> list[ir.Node] | None:
    """The nodes from the product of queries and keys to `value`; a mask comes from outside."""
    nodes: list[ir.Node] = []
    while True:
        node = value.producer()
        if node is None or node.graph is None:
            return None
        nodes.append(node)
        if node.op_type == "MatMul":
            return None if any(each is None or is_static(each) for each in node.inputs) else nodes
        inputs = data_inputs(node)
        if node.op_type not in POINTWISE | _MOVES or not inputs:
            return None
        # Of the scores and a mask, the scores are what was computed last.
        value = max(inputs, key=lambda each: -1 if (made := each.producer()) is None else order[made])


PATTERNS = (
    Pattern(kind="Attention", match=match, engines=frozenset({"openvino"}), place=90),
    Pattern(kind="GuardedAttention", match=match_guarded, engines=frozenset({"tensorrt"}), place=90),
)
