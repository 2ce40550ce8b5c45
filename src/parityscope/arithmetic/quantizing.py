"""Products of quantized operands, as engines compute them: INT8, and FP8 E4M3 with scales.

A product (Conv, ConvTranspose, Gemm, MatMul) reads its operands quantized and gives its result in the type around it;
everything else stays as it is typed. What is accumulated are whole numbers in INT8 and FP32 numbers in FP8: neither
rounds anything that counts here.

* **int8**: activations with one symmetric scale a tensor, s = largest / 127, q = round(x / s) to nearest even, saturated to
  -128..127; weights with one scale for each channel of what comes out, saturated to ±127. This is what TensorRT calibrates
  (symmetric, per tensor and per channel) and what explicit QuantizeLinear and DequantizeLinear nodes say.
* **fp8**: the products that engines take in FP8 and the scales of `float8`.

The largest magnitude of an activation is given (a calibration's "dynamic range"); there is no scale without it. Products
inside bodies, and those whose operand has none, are left alone and said.

Sources: ONNX operators QuantizeLinear-10 and DequantizeLinear-10; NVIDIA TensorRT, "Working with Quantized Types" (symmetric
quantization, per-tensor activations, per-channel weights).
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.float8 import quantize_and_back, scale_axis_of, scalings_of
from parityscope.arithmetic.formats import QUANTIZED
from parityscope.arithmetic.integers import INTEGERS, Quantizer, fake_quantize, quantization_of
from parityscope.arithmetic.simulation import Arrangement, arrange_precision
from parityscope.case.graph import constant_value
from parityscope.errors import ParityError
from parityscope.operators import CONTRACTIONS
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.arithmetic.held_grids import HeldGrid

_OPERANDS = (0, 1)
_INT8 = INTEGERS["int8"]


def operands_of(model: ir.Model) -> tuple[str, ...]:
    """The activations that products of the main graph read: those whose largest magnitude is needed."""
    return tuple(
        dict.fromkeys(
            str(value.name)
            for node, index in _operand_uses(model)
            if (value := node.inputs[index]) is not None and constant_value(value) is None
        )
    )


def quantize_products(
    model: ir.Model, name: str, largest: Mapping[str, float], held: Mapping[str, HeldGrid] = MappingProxyType({})
) -> Arrangement:
    """What is rounded in `model` as it is typed, with the operands of its products quantized.

    Args:
        model: Any opset from 7; only put in topological order.
        name: One of `QUANTIZED`.
        largest: The largest magnitude of each activation that a product reads, by name.
        held: The grids of constants that a file keeps in INT8, by name: of weights, and of tables that no product reads.

    Raises:
        ParityError: there is no such quantization, or the opset cannot be converted up.
    """
    if name not in QUANTIZED:
        raise ParityError(f"{name} quantizes no products", fix=f"use one of: {', '.join(QUANTIZED)}")
    typed = arrange_precision(model, None)
    found = _int8_operands(typed.model, largest, held) if name == "int8" else _fp8_operands(typed.model, largest)
    constants = {place: what for place, what in found.items() if isinstance(what, np.ndarray)}
    return replace(
        typed,
        precision=name,
        plan=replace(typed.plan, constants={**typed.plan.constants, **constants}),
        quantizers={place: what for place, what in found.items() if isinstance(what, Quantizer)},
        notes=(*typed.notes, *_skips_of_unquantized(model, typed.model, largest)),
    )


def _operand_uses(model: ir.Model) -> Iterator[tuple[ir.Node, int]]:
    for node in model.graph:
        if _is_product(node):
            yield from ((node, index) for index in _OPERANDS)


def _is_product(node: ir.Node) -> bool:
    return node.op_type in CONTRACTIONS and node.domain in {"", "ai.onnx"} and len(node.inputs) > 1


def _int8_operands(
    copy: ir.Model, largest: Mapping[str, float], held: Mapping[str, HeldGrid]
) -> dict[tuple[ir.Node, int], np.ndarray | Quantizer]:
    """What products read in the place of each operand, and whatever else in that of a constant with a grid."""
    found: dict[tuple[ir.Node, int], np.ndarray | Quantizer] = {
        (node, index): held[str(value.name)].round(tensor.numpy())
        for node in copy.graph
        for index, value in enumerate(node.inputs)
        if value is not None and value.name in held and (tensor := constant_value(value)) is not None
    }
    for node in [one for one in copy.graph if _is_product(one) and _can_be_quantized(one, largest)]:
        for index, value in _operands_read(node):
            tensor = constant_value(value)
            if (node, index) in found:
                continue
            if tensor is not None:
                how = quantization_of(
                    tensor.numpy(), _INT8, axis=scale_axis_of(node, index, len(tensor.shape)), symmetric=True
                )
                found[node, index] = fake_quantize(tensor.numpy(), how)
            else:
                size = largest[str(value.name)]
                scale = float(np.float32(size / _INT8.highest)) if size > 0 else 1.0
                found[node, index] = Quantizer(scale, (_INT8.lowest, _INT8.highest))
    return found


def _fp8_operands(copy: ir.Model, largest: Mapping[str, float]) -> dict[tuple[ir.Node, int], np.ndarray | Quantizer]:
    """The same, with the products and the scales of `float8`. Sizes that the model leaves open are taken to fit."""
    found: dict[tuple[ir.Node, int], np.ndarray | Quantizer] = {}
    names = {node: node.name for node in copy.graph}
    for number, node in enumerate(names):
        node.name = f"product {number}"  # unique, for `scalings_of`
    scalings = scalings_of(copy, largest, _product_shapes(copy))
    for node in [one for one in names if one.name in scalings]:
        for index, value in _operands_read(node):
            scaling = scalings[str(node.name)][index]
            tensor = constant_value(value)
            found[node, index] = (
                Quantizer(float(scaling.scale), None) if tensor is None else quantize_and_back(tensor.numpy(), scaling)
            )
    for node, name in names.items():
        node.name = name
    return found


def _operands_read(node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
    for index in _OPERANDS:
        value = node.inputs[index]
        if value is not None:
            yield index, value


def _product_shapes(copy: ir.Model) -> dict[str, tuple[int, ...]]:
    """Dimensions of what products read, 0 (a multiple of everything) for those that are open; the depth of weights is known."""
    found: dict[str, tuple[int, ...]] = {}
    for node, index in _operand_uses(copy):
        value = node.inputs[index]
        if value is None or constant_value(value) is not None:
            continue
        dims = list(value.shape) if value.shape is not None else [None, None]
        sizes = [dim if isinstance(dim, int) else 0 for dim in dims]
        second = node.inputs[1]
        weight = constant_value(second) if second is not None else None
        if node.op_type in {"Gemm", "MatMul"} and index == 0 and weight is not None and len(sizes) > 1:
            transposed = node.op_type == "Gemm" and node.attributes.get_int("transB", 0) != 0
            depth = -2 if node.op_type == "Gemm" and node.attributes.get_int("transA", 0) != 0 else -1
            sizes[depth] = int(weight.shape.numpy()[-1 if transposed else -2])
        found[str(value.name)] = tuple(sizes)
    return found


def _can_be_quantized(node: ir.Node, largest: Mapping[str, float]) -> bool:
    """Whether both operands are float32 and have a scale."""
    for index in _OPERANDS:
        value = node.inputs[index]
        if value is None or value.dtype != ir.DataType.FLOAT:
            return False
        if constant_value(value) is None and not math.isfinite(largest.get(str(value.name), math.nan)):
            return False
    return True


def _skips_of_unquantized(model: ir.Model, copy: ir.Model, largest: Mapping[str, float]) -> Iterator[Skip]:
    """What is not quantized although it multiplies."""
    lacking = [name for name in operands_of(model) if not math.isfinite(largest.get(name, math.nan))]
    if lacking:
        yield Skip(
            what=f"products that read {lacking[0]!r}" + (f" or {len(lacking) - 1} more tensors" if lacking[1:] else ""),
            reason="no largest magnitude is known of it, so it has no scale; these products stay as they are",
        )
    main = set(copy.graph)
    inside = sum(1 for node in copy.graph.all_nodes() if node not in main and _is_product(node))
    if inside:
        yield Skip(
            what=f"{inside} products in bodies of If, Loop or Scan",
            reason="no calibration sees their operands; they stay as they are",
        )
