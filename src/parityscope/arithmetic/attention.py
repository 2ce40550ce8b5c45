"""Attention taken apart: the operator as the products, the scale, the mask and the Softmax that it is defined by.

An engine of lower precision rounds the probabilities on their way into the second product, inside of the operator. From
outside only what it reads and gives can be rounded.

    Y = softmax(softcap(Q K' scale) + mask) V

over the last two axes; inputs of rank 3 are (batch, sequence, heads * size). Fewer heads of K and V than of Q are shared by
neighbouring ones. The standard puts the root of `scale` on each operand of the first product; engines put `scale` on its
result, and round queries and keys as they are. Left as they are: operators with a past, with padded keys, or with further
outputs that are read.

Source: ONNX operator Attention (opset 23).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.graphs import Names, add_constant
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

_INPUTS = 4  # Q, K, V and the mask; what comes behind is a past, or the lengths of padded keys


def is_attention(node: ir.Node) -> bool:
    """Whether a node is ONNX's attention."""
    return node.op_type == "Attention" and node.domain in {"", "ai.onnx"}


def attention_apart(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> ir.Model:
    """A copy of `model` in which every Attention of its main graph that can be is taken apart; itself where none can.

    `shapes` are those of values by name; the copy holds for them alone.
    """
    if not any(is_attention(node) and _has_known_shapes(node, shapes) for node in model.graph):
        return model
    copy = model.clone()
    names = Names(copy)
    for node in [node for node in copy.graph if is_attention(node) and _has_known_shapes(node, shapes)]:
        made = _Parts(node=node, model=copy, names=names)
        output = node.outputs[0]
        result = _build_parts(made, shapes)
        node.append(made.nodes)
        name = str(output.name)
        output.name = names.fresh(name, "whole")
        result.name, result.type, result.shape = name, output.type, output.shape
        output.replace_all_uses_with(result, replace_graph_outputs=True)
        copy.graph.remove(node, safe=True)
    return copy


def _has_known_shapes(node: ir.Node, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    inputs, further = node.inputs[:_INPUTS], node.inputs[_INPUTS:]
    if any(value is not None for value in further) or any(value.uses() for value in node.outputs[1:]):
        return False
    ranks = [len(shapes.get(str(value.name), ())) for value in inputs[:3] if value is not None]
    flat = "q_num_heads" in node.attributes and "kv_num_heads" in node.attributes
    floats = all(value is not None and value.dtype == ir.DataType.FLOAT for value in inputs[:3])
    return floats and (ranks == [4] * 3 or (ranks == [3] * 3 and flat))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The nodes that stand for one operator."""

    node: ir.Node
    model: ir.Model
    names: Names
    nodes: list[ir.Node] = field(default_factory=list)

    def add(self, op_type: str, *inputs: ir.Value, attributes: tuple[ir.Attr, ...] = ()) -> ir.Value:
        made = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=self.node.name)
        made.outputs[0].name = self.names.fresh(self.node.outputs[0].name, op_type.lower())
        made.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        self.nodes.append(made)
        return made.outputs[0]

    def constant(self, array: np.ndarray, title: str) -> ir.Value:
        return add_constant(self.model.graph, array, self.names.fresh(self.node.outputs[0].name, title))

    def moved(self, value: ir.Value, *perm: int) -> ir.Value:
        return self.add("Transpose", value, attributes=(ir.AttrInt64s("perm", perm),))

    def shaped(self, value: ir.Value, *shape: int) -> ir.Value:
        return self.add("Reshape", value, self.constant(np.array(shape, np.int64), "shape"))


def _build_parts(made: _Parts, shapes: Mapping[str, tuple[int, ...]]) -> ir.Value:
    node = made.node
    sources = [value for value in node.inputs[:3] if value is not None]
    sizes = [shapes[str(value.name)] for value in sources]
    flat = len(sizes[0]) == len(("batch", "sequence", "heads and size"))
    counts = [node.attributes.get_int(name, 1) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if flat:
        sizes = [
            (batch, count, length, width // count) for (batch, length, width), count in zip(sizes, counts, strict=True)
        ]
        sources = [
            made.moved(made.shaped(value, size[0], size[2], size[1], size[3]), 0, 2, 1, 3)
            for value, size in zip(sources, sizes, strict=True)
        ]
    (batch, heads, rows, width), (_, shared, columns, _), _ = sizes
    if heads != shared:
        which = made.constant(np.repeat(np.arange(shared), heads // shared), "heads")
        sources[1:] = [made.add("Gather", value, which, attributes=(ir.AttrInt64("axis", 1),)) for value in sources[1:]]
    queries, keys, values = sources
    scores = made.add("MatMul", queries, made.moved(keys, 0, 1, 3, 2))
    scale = node.attributes.get_float("scale", 0.0) or 1.0 / math.sqrt(width)
    scores = made.add("Mul", scores, made.constant(np.array(scale, np.float32), "scale"))
    scores = _mask_scores(made, _cap_scores(made, scores), rows, columns)
    chances = made.add("Softmax", scores, attributes=(ir.AttrInt64("axis", -1),))
    result = made.add("MatMul", chances, values)
    return made.shaped(made.moved(result, 0, 2, 1, 3), batch, rows, -1) if flat else result


def _cap_scores(made: _Parts, scores: ir.Value) -> ir.Value:
    cap = made.node.attributes.get_float("softcap", 0.0)
    if not cap:
        return scores
    limit = made.constant(np.array(cap, np.float32), "cap")
    return made.add("Mul", made.add("Tanh", made.add("Div", scores, limit)), limit)


def _mask_scores(made: _Parts, scores: ir.Value, rows: int, columns: int) -> ir.Value:
    mask = made.node.inputs[3] if len(made.node.inputs) > 3 else None
    outside = made.constant(np.array(-np.inf, np.float32), "outside")
    if made.node.attributes.get_int("is_causal", 0):
        seen = made.constant(np.tril(np.ones((rows, columns), np.bool_)), "causal")
        scores = made.add("Where", seen, scores, outside)
    if mask is None:
        return scores
    return made.add("Where", mask, scores, outside) if mask.dtype == ir.DataType.BOOL else made.add("Add", scores, mask)
