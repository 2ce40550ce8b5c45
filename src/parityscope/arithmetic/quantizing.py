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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic._attributes import integer
from parityscope.arithmetic._graphs import Names, constant_tensor
from parityscope.arithmetic._taken import Taken
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.float8 import dequantized, scaling_nodes, scalings_of
from parityscope.arithmetic.integers import INTEGERS, fake_quantize, quantization_of
from parityscope.arithmetic.opsets import prepared
from parityscope.arithmetic.primitives import Rewriting, constant_number
from parityscope.arithmetic.quantized import QUANTIZED
from parityscope.arithmetic.simulation import PRECISIONS, Simulation, detype
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["operands_of", "quantize_products"]

_OPERANDS = (0, 1)
_QUANTIZED_OPERATORS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_INT8 = INTEGERS["int8"]
_OPSETS = {"int8": 11, "fp8": PRECISIONS["f8e4m3"]}  # Round and Clip with inputs; Cast to float8


def operands_of(model: ir.Model) -> tuple[str, ...]:
    """The activations that products of the main graph read: those whose largest magnitude is needed."""
    return tuple(
        dict.fromkeys(
            str(value.name)
            for node, index in _uses(model)
            if (value := node.inputs[index]) is not None and constant_tensor(value) is None
        )
    )


def quantize_products(
    model: ir.Model, name: str, largest: Mapping[str, float], *, compiled: bool = False
) -> Simulation:
    """The graph of `model` with the operands of its products quantized; `model` itself is only put in topological order.

    Args:
        model: Any opset from 7.
        name: One of `QUANTIZED`.
        largest: The largest magnitude of each activation that a product reads, by name.
        compiled: Whether tensors are rounded by an operator that the runtime has to be given (`primitives`).

    Raises:
        ParityError: there is no such quantization, or the opset cannot be converted up.
    """
    if name not in QUANTIZED:
        raise ParityError(f"{name} quantizes no products", fix=f"use one of: {', '.join(QUANTIZED)}")
    typed = detype(prepared(model, _OPSETS[name]), compiled=compiled)
    copy = typed.model
    infer_types(copy)
    work = Rewriting(model=copy, names=Names(copy), overflow="saturate", compiled=compiled)
    taken = _int8(copy, largest, work) if name == "int8" else _fp8(copy, largest, work)
    return Simulation(
        model=copy,
        precision=name,
        tensors=typed.tensors,
        weights={**typed.weights, **{one: name for one, constant in taken.items() if constant}},
        operands={one: name for one, constant in taken.items() if not constant},
        notes=(*typed.notes, *_left(model, copy, largest)),
    )


def _uses(model: ir.Model) -> Iterator[tuple[ir.Node, int]]:
    for node in model.graph:
        if _is_product(node):
            yield from ((node, index) for index in _OPERANDS)


def _is_product(node: ir.Node) -> bool:
    return node.op_type in _QUANTIZED_OPERATORS and node.domain in {"", "ai.onnx"} and len(node.inputs) > 1


def _int8(copy: ir.Model, largest: Mapping[str, float], work: Rewriting) -> dict[str, bool]:
    """Quantizes in place; what was, and whether it is a constant."""
    taken = Taken(suffix="int8", work=work)
    for node in [one for one in copy.graph if _is_product(one) and _takes(one, largest)]:
        for index, value in _read(node):
            tensor = constant_tensor(value)
            if tensor is not None:
                how = quantization_of(tensor.numpy(), _INT8, axis=_channel(node, index, value), symmetric=True)
                taken.constant(node, index, fake_quantize(tensor.numpy(), how))
            else:
                size = largest[str(value.name)]
                taken.activation(node, index, partial(_steps, value, size, work))
    return taken.finished()


def _fp8(copy: ir.Model, largest: Mapping[str, float], work: Rewriting) -> dict[str, bool]:
    """The same, with the products and the scales of `float8`. Sizes that the model leaves open are taken to fit."""
    names = {node: node.name for node in copy.graph}
    for number, node in enumerate(names):
        node.name = f"product {number}"  # unique, for `scalings_of`
    scalings = scalings_of(copy, largest, _shapes(copy))
    taken = Taken(suffix="fp8", work=work)
    for node in [one for one in names if one.name in scalings]:
        for index, value in _read(node):
            scaling = scalings[str(node.name)][index]
            tensor = constant_tensor(value)
            if tensor is not None:
                taken.constant(node, index, dequantized(tensor.numpy(), scaling))
            else:
                taken.activation(node, index, partial(scaling_nodes, value, scaling, work))
    for node, name in names.items():
        node.name = name
    return taken.finished()


def _read(node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
    for index in _OPERANDS:
        value = node.inputs[index]
        if value is not None:
            yield index, value


def _shapes(copy: ir.Model) -> dict[str, tuple[int, ...]]:
    """Dimensions of what products read, 0 (a multiple of everything) for those that are open; the depth of weights is known."""
    found: dict[str, tuple[int, ...]] = {}
    for node, index in _uses(copy):
        value = node.inputs[index]
        if value is None or constant_tensor(value) is not None:
            continue
        dims = list(value.shape) if value.shape is not None else [None, None]
        sizes = [dim if isinstance(dim, int) else 0 for dim in dims]
        second = node.inputs[1]
        weight = constant_tensor(second) if second is not None else None
        if node.op_type in {"Gemm", "MatMul"} and index == 0 and weight is not None and len(sizes) > 1:
            transposed = node.op_type == "Gemm" and integer(node, "transB", 0)
            depth = -2 if node.op_type == "Gemm" and integer(node, "transA", 0) else -1
            sizes[depth] = int(weight.shape.numpy()[-1 if transposed else -2])
        found[str(value.name)] = tuple(sizes)
    return found


def _takes(node: ir.Node, largest: Mapping[str, float]) -> bool:
    """Whether both operands are float32 and have a scale."""
    for index in _OPERANDS:
        value = node.inputs[index]
        if value is None or value.dtype != ir.DataType.FLOAT:
            return False
        if constant_tensor(value) is None and not math.isfinite(largest.get(str(value.name), math.nan)):
            return False
    return True


def _channel(node: ir.Node, index: int, value: ir.Value) -> int | None:
    """The axis of a weight along which its product's channels lie; None where one scale is for all of it."""
    rank = len(value.shape) if value.shape is not None else 0
    if node.op_type == "Conv" and index == 1:
        return 0
    if node.op_type == "ConvTranspose" and index == 1:
        # (in, out / groups, ...): with groups a channel is no single index of the axis.
        return 1 if integer(node, "group", 1) == 1 else None
    if node.op_type == "Gemm" and index == 1:
        return 0 if integer(node, "transB", 0) else 1
    return 1 if node.op_type == "MatMul" and index == 1 and rank == 2 else None


def _steps(value: ir.Value, largest: float, work: Rewriting) -> list[ir.Node]:
    """What the integers stand for, as float32: x / s, to the nearest integer, within the format's, times s."""
    scale = np.float32(largest / _INT8.highest) if largest > 0 else np.float32(1)
    numbers = [constant_number(number, work) for number in (float(scale), float(_INT8.lowest), float(_INT8.highest))]
    nodes: list[ir.Node] = []

    def add(op_type: str, *inputs: ir.Value) -> ir.Value:
        name = work.names.fresh(str(value.name), op_type.lower() if op_type != "Mul" else "int8")
        node = ir.Node("", op_type, inputs, num_outputs=1, name=f"parityscope::{name}")
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
        nodes.append(node)
        return node.outputs[0]

    levels = add("Clip", add("Round", add("Div", value, numbers[0])), numbers[1], numbers[2])
    add("Mul", levels, numbers[0])
    return nodes


def _left(model: ir.Model, copy: ir.Model, largest: Mapping[str, float]) -> Iterator[Skip]:
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
