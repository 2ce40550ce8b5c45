"""The same network with its sums in another order: exact in real arithmetic, different in floating point.

Products whose second operand is a constant get the axis that they sum over permuted in both operands: `Gather` with one
random permutation on the input's channels and on the weights'. Grouped convolutions (nothing to permute but taps) and
products of two computed tensors stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic._graphs import Names, constant_like, constant_tensor
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import OLDEST, prepared

if TYPE_CHECKING:
    import numpy as np

__all__ = ["reordered"]


def reordered(model: ir.Model, generator: np.random.Generator) -> ir.Model:
    """A copy of `model` whose values keep their names and whose sums run in an order drawn from `generator`.

    Raises:
        ParityError: the opset cannot be converted to 7.
    """
    copy = prepared(model, OLDEST)
    infer_types(copy)
    names = Names(copy)
    for node in list(copy.graph):
        axes = _summed_axes(node)
        if axes is None:
            continue
        data, weights = node.inputs[0], node.inputs[1]
        tensor = None if weights is None else constant_tensor(weights)
        if data is None or weights is None or tensor is None or not tensor.shape.numpy():
            continue
        count = int(tensor.shape.numpy()[axes[1]])
        if count < 2:  # one term has one order
            continue
        order = constant_like(weights, generator.permutation(count), names.fresh(weights.name, "order"))
        for index, (value, axis) in enumerate(zip((data, weights), axes, strict=True)):
            permuted = ir.Node("", "Gather", [value, order], [ir.AttrInt64("axis", axis)], num_outputs=1)
            permuted.outputs[0].name = names.fresh(value.name, "permuted")
            permuted.outputs[0].type = value.type
            permuted.name = permuted.outputs[0].name
            node.prepend(permuted)
            node.replace_input_with(index, permuted.outputs[0])
    return copy


def _summed_axes(node: ir.Node) -> tuple[int, int] | None:
    """The axis summed over, of the data and of the weights; None where it cannot be permuted."""
    if node.domain not in {"", "ai.onnx"} or len(node.inputs) < 2:
        return None
    if node.op_type == "Conv":
        return (1, 1) if integer(node, "group", 1) == 1 else None
    if node.op_type == "Gemm":
        return (0 if integer(node, "transA", 0) else 1, 1 if integer(node, "transB", 0) else 0)
    if node.op_type == "MatMul":
        weights = node.inputs[1]
        tensor = None if weights is None else constant_tensor(weights)
        return (-1, -2) if tensor is not None and len(tensor.shape.numpy()) > 1 else None
    return None
