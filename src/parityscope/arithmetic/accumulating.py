"""A depthwise convolution that accumulates in a narrow format, as single operators with roundings between them.

Engines have depthwise kernels of their own, which add up few products and keep their sums in the type of the tensors.
For float16 that is what a fused multiply-add of two halves does: with x and w rounded,

    s := round(s + x·w)    for each tap, from s = 0, rows of the kernel before columns

where x·w is exact in float32 (twice eleven bits) and the sum is rounded to float32 first. The bias is added to the
finished sum. Each tap is a Slice, a Mul, an Add and a rounding, whatever the size of the input.

The order of the taps is not what every engine takes; it changes the error's direction, and hardly its size.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._graphs import constant_tensor, feed, give_back
from parityscope.arithmetic.primitives import rounding_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.primitives import Rewriting

__all__ = ["OPSET", "accumulate", "is_depthwise"]

OPSET = 11  # the first in which Slice and Pad take what they need as inputs
_TO_THE_END = np.iinfo(np.int64).max


def is_depthwise(node: ir.Node) -> bool:
    """Whether a node is a convolution of each channel by itself, with constant weights and given padding."""
    if node.op_type != "Conv" or node.domain not in {"", "ai.onnx"} or len(node.inputs) < 2:
        return False
    weights = node.inputs[1]
    tensor = None if weights is None else constant_tensor(weights)
    if tensor is None or len(tensor.shape) < 3:
        return False
    channels, depth = (int(dim) for dim in tensor.shape.numpy()[:2])
    padding = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    group = node.attributes["group"].as_int() if "group" in node.attributes else 1
    return group == channels > 1 and depth == 1 and padding in {"NOTSET", "VALID"}


def accumulate(node: ir.Node, number_format: Format, work: Rewriting) -> None:
    """Replaces a node that `is_depthwise` by its taps, whose sum is rounded to `number_format` behind each.

    What it reads is taken as it is: inputs and weights are rounded already.
    """
    graph, source, output = node.graph, node.inputs[0], node.outputs[0]
    tensor = constant_tensor(node.inputs[1]) if node.inputs[1] is not None else None
    if graph is None or source is None or tensor is None:
        raise ValueError(f"{node.name} is not a depthwise convolution with constant weights")
    build = _Builder(work, output)
    weights = tensor.numpy()
    kernel, rank = weights.shape[2:], weights.ndim - 2
    strides, dilations = (_integers(node, name, [1] * rank) for name in ("strides", "dilations"))
    padded = _padded(node, source, rank, build)
    total: ir.Value | None = None
    for tap in product(*(range(size) for size in kernel)):
        begin = [at * step for at, step in zip(tap, dilations, strict=True)]
        left = [(size - 1 - at) * step for at, size, step in zip(tap, kernel, dilations, strict=True)]
        inputs = [
            build.constant(np.array(begin, np.int64)),
            build.constant(np.array([-rest if rest else _TO_THE_END for rest in left], np.int64)),
            build.constant(np.arange(2, 2 + rank)),
            build.constant(np.array(strides, np.int64)),
        ]
        column = np.array([channel[tap] for channel in weights[:, 0]], weights.dtype).reshape(-1, *[1] * rank)
        term = build.node("Mul", build.node("Slice", padded, *inputs), build.constant(column))
        total = build.rounded(term if total is None else build.node("Add", total, term), number_format)
    if total is None:
        raise ValueError(f"the kernel of {node.name} is empty")
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        total = build.node("Add", total, build.by_channel(node.inputs[2], rank))
    node.append(build.nodes)
    total.shape = output.shape
    feed(list(output.uses()), total)
    give_back(output, total)
    total.name, output.name = output.name, work.names.fresh(output.name, "at once")
    graph.remove(node, safe=True)


class _Builder:
    """Collects nodes that compute values of one type, and the constants that they read."""

    def __init__(self, work: Rewriting, like: ir.Value) -> None:
        self.nodes: list[ir.Node] = []
        self._work = work
        self._name = str(like.name)
        self._type = like.type

    def node(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        name = self._work.names.fresh(self._name, "tap")
        self.nodes.append(ir.Node("", op_type, inputs, num_outputs=1, name=f"parityscope::{name}"))
        output = self.nodes[-1].outputs[0]
        output.name, output.type = name, self._type
        return output

    def constant(self, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(np.ascontiguousarray(array), name=self._work.names.fresh(self._name, "constant"))
        made = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self._work.model.graph.register_initializer(made)
        return made

    def rounded(self, value: ir.Value, number_format: Format) -> ir.Value:
        name = self._work.names.fresh(self._name, "sum")
        self.nodes.extend(rounding_nodes(value, number_format, name, self._work))
        return self.nodes[-1].outputs[0]

    def by_channel(self, value: ir.Value, rank: int) -> ir.Value:
        """A vector over channels as (C, 1, ...), by Reshape, which has been the same since opset 5."""
        shape = np.array([-1, *[1] * rank], np.int64)
        return self.node("Reshape", value, self.constant(shape))


def _padded(node: ir.Node, source: ir.Value, rank: int, build: _Builder) -> ir.Value:
    pads = _integers(node, "pads", [0] * (2 * rank))
    if not any(pads):
        return source
    return build.node("Pad", source, build.constant(np.array([0, 0, *pads[:rank], 0, 0, *pads[rank:]], np.int64)))


def _integers(node: ir.Node, name: str, otherwise: Sequence[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return list(otherwise) if attribute is None else [int(number) for number in attribute.as_ints()]
