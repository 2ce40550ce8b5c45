"""Writes products in FP8 E4M3 down: QuantizeLinear and DequantizeLinear before each operand, weights stored in 8 bits.

In: a typed model, and the scales of the products that are to be in FP8 (`arithmetic.float8`). Out: in place, for each
computed operand one QuantizeLinear and one DequantizeLinear for every type that reads it so, with a scale of that type;
for a constant one its numbers in E4M3 and a DequantizeLinear with a scale a channel. Zero points are 0, as E4M3's have
to be. This is how TensorRT takes FP8 in a strongly typed network: pairs around what a product reads, the type of the
scale saying what the product gives (TensorRT, Working with Quantized Types: explicit quantization).

Numbers are those that the switchable graph predicts: weights are rounded from the model's own, not from FP16's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.float8 import E4M3
from parityscope.arithmetic.graphs import Names, add_constant, drop_if_unread, prepend_nodes
from parityscope.arithmetic.rounding import round_to
from parityscope.case.graph import constant_value
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.arithmetic.float8 import OperandScaling, Scalings

OPSET = 19  # the first in which QuantizeLinear and DequantizeLinear take float8
_EIGHT = ir.DataType.FLOAT8E4M3FN


def quantize_operands(model: ir.Model, original: ir.Model, products: Mapping[str, Scalings]) -> None:
    """Puts the operands of `products` (by the name of the node) into FP8; `original` holds the weights unrounded.

    Raises:
        ParityError: there is no such node.
    """
    work = _EighthsWork(model=model, names=Names(model))
    nodes = {node.name: node for node in model.graph}
    sources = {node.name: node for node in original.graph}
    for name, scalings in products.items():
        if name not in nodes or name not in sources:
            raise ParityError(f"{name!r} is no product that can be in FP8", fix="take names of Conv, Gemm or MatMul")
        for index, scaling in scalings.items():
            work.operand(nodes[name], index, sources[name].inputs[index], scaling)
    work.drop_unread()


@dataclass(slots=True, kw_only=True)
class _EighthsWork:
    """What was made so far, so that nothing is made twice."""

    model: ir.Model
    names: Names
    pairs: dict[tuple[ir.Value, float], ir.Value] = field(default_factory=dict)
    weights: dict[tuple[ir.Value, ir.DataType], ir.Value] = field(default_factory=dict)
    constants: dict[tuple[str, bytes], ir.Value] = field(default_factory=dict)
    replaced: list[ir.Value] = field(default_factory=list)

    def operand(self, node: ir.Node, index: int, source: ir.Value | None, scaling: OperandScaling) -> None:
        value = node.inputs[index]
        if value is None or source is None or value.dtype is None:
            raise ParityError(f"{node.name!r} lacks its operand {index}", fix="check the model with onnx.checker")
        tensor = constant_value(source)
        made = self._pair(value, scaling) if tensor is None else self._weight(value, tensor.numpy(), scaling)
        node.replace_input_with(index, made)
        self.replaced.append(value)

    def drop_unread(self) -> None:
        """Removes the constants that nothing reads any more."""
        for value in self.replaced:
            if constant_value(value) is not None:
                drop_if_unread(value)

    def _pair(self, value: ir.Value, scaling: OperandScaling) -> ir.Value:
        key = value, float(scaling.scale)
        if key not in self.pairs:
            scale = self._scale(scaling, value)
            down = _make_node(
                "QuantizeLinear", [value, scale, self._zero()], self.names.fresh(value.name, "f8e4m3"), _EIGHT
            )
            up = _make_node(
                "DequantizeLinear", [down.outputs[0], scale], self.names.fresh(value.name, "fp8"), value.dtype
            )
            for one in (down, up):
                one.outputs[0].shape = value.shape
            producer = value.producer()
            if producer is None:
                prepend_nodes(self.model.graph, [down, up])
            else:
                producer.append([down, up])
            self.pairs[key] = up.outputs[0]
        return self.pairs[key]

    def _weight(self, value: ir.Value, array: np.ndarray, scaling: OperandScaling) -> ir.Value:
        key = value, value.dtype or ir.DataType.FLOAT
        if key not in self.weights:
            rounded = round_to(array / scaling.along(array.ndim), E4M3, overflow="saturate")
            stored = self._constant(f"{value.name}::f8e4m3", rounded.astype(ml_dtypes.float8_e4m3fn), _EIGHT)
            node = _make_node(
                "DequantizeLinear",
                [stored, self._scale(scaling, value)],
                self.names.fresh(value.name, "fp8"),
                value.dtype,
                [ir.AttrInt64("axis", scaling.axis)],
            )
            node.outputs[0].shape = stored.shape
            prepend_nodes(self.model.graph, [node])
            self.weights[key] = node.outputs[0]
        return self.weights[key]

    def _scale(self, scaling: OperandScaling, value: ir.Value) -> ir.Value:
        dtype = value.dtype or ir.DataType.FLOAT
        return self._constant(f"{value.name}::scale", scaling.scale.astype(dtype.numpy()), dtype)

    def _zero(self) -> ir.Value:
        return self._constant("typed::zero", np.zeros((), ml_dtypes.float8_e4m3fn), _EIGHT)

    def _constant(self, name: str, array: np.ndarray, dtype: ir.DataType) -> ir.Value:
        key = f"{name} {dtype}", array.tobytes()
        if key not in self.constants:
            head, _, tail = name.rpartition("::")
            self.constants[key] = add_constant(self.model.graph, array, self.names.fresh(head, tail))
        return self.constants[key]


def _make_node(
    op_type: str,
    inputs: list[ir.Value],
    name: str,
    dtype: ir.DataType | None,
    attributes: list[ir.Attr] | None = None,
) -> ir.Node:
    node = ir.Node("", op_type, inputs, attributes or [], num_outputs=1, name=f"typed::{name}")
    node.outputs[0].name = name
    node.outputs[0].type = ir.TensorType(dtype or ir.DataType.FLOAT)
    return node
