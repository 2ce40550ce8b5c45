"""What the nodes inside If, Loop and Scan work on, for the cost model: FP32 runs that count over all iterations.

Dimensions inside a body may differ from one iteration to the next, so that elements are counted. Floating-point operations
follow from what came out and the length that is summed over, which is that of the weights, or the last dimension of the
first operand.
"""

from __future__ import annotations

import math
from statistics import mean
from typing import TYPE_CHECKING

from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass
from parityscope.operators import base_of, of_kind
from parityscope.repairs.search.watching import seen_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from parityscope.case import Model, Sample

__all__ = ["Size", "Sizes", "flops_within", "size_of", "sizes_within"]

_SAMPLES = 8  # chosen: which branches are taken, and how often bodies run, is a mean of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A tensor inside a body: its elements over all iterations, the mean of the samples, and its longest last dimension."""

    elements: float
    last: float


Sizes = dict[tuple[str, int], Size]  # by the name of the node that gives the tensor, and the number of the output


def sizes_within(model: Model, samples: Sequence[Sample], threads: int) -> Sizes:
    """The sizes of what bodies compute, 0 where none ran, on the first few samples; `model` has unique node names.

    Raises:
        ParityError: the reference cannot run.
    """
    held = list(seen_within(model, samples[:_SAMPLES], threads))
    found: Sizes = {}
    for value in held[0] if held else ():
        node = value.producer()
        if node is not None:
            several = [seen[value] for seen in held]
            size = Size(elements=mean(one.elements for one in several), last=max(one.last for one in several))
            found[node.name or "", value.index() or 0] = size
    return found


def flops_within(node: ir.Node, sizes: Sizes) -> float:
    """Floating-point operations of a product inside a body, over all iterations, two a multiply-accumulate; 0 for others.

    As `costs.flops_of`: 2 |output| times the length that is summed over. Where nobody knows that length it is 0.
    """
    made = sizes.get((node.name or "", 0))
    if made is None or not node.inputs:
        return 0.0
    held = [constant_value(value) for value in node.inputs]
    dims = [None if one is None else [int(dim) for dim in one.shape.numpy()] for one in held]
    weights = dims[1] if len(dims) > 1 else None
    match base_of(node.op_type):
        case "Conv" if weights is not None:
            return 2.0 * made.elements * math.prod(weights[1:])
        case "ConvTranspose" if weights is not None:
            read = size_of(node.inputs[0], sizes)
            return 2.0 * read.elements * math.prod(weights[1:]) if read is not None else 0.0
        case "MatMul" | "Gemm":
            return 2.0 * made.elements * _summed_length(node, dims, sizes)
        case op_type if op_type in of_kind("recurrent"):
            read = size_of(node.inputs[0], sizes)
            inner = sum(math.prod(one) for one in dims[1:3] if one is not None)
            return 2.0 * inner * read.elements / max(read.last, 1.0) if read is not None else 0.0
        case _:
            return 0.0


def size_of(value: ir.Value | None, sizes: Mapping[tuple[str, int], Size]) -> Size | None:
    """The size of a value that a node inside a body gives; None for any other."""
    node = None if value is None else value.producer()
    return None if node is None or value is None else sizes.get((node.name or "", value.index() or 0))


def _summed_length(node: ir.Node, dims: list[list[int] | None], sizes: Sizes) -> float:
    """The length that a matrix product sums over; 0 where nobody knows it."""
    second = dims[1] if len(dims) > 1 else None
    if second:
        return second[-1] if node.attributes.get_int("transB", 0) else second[max(len(second) - 2, 0)]
    if node.attributes.get_int("transA", 0):
        return dims[0][0] if dims[0] else 0.0
    if dims[0]:
        return dims[0][-1]
    read = size_of(node.inputs[0], sizes)
    return 0.0 if read is None else read.last
