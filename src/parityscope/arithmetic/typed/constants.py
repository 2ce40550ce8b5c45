"""Constants in a lower format: rounded to nearest even as they are, with what that destroys counted.

Nothing is lifted to the smallest number or held at the largest: a value that the format cannot hold becomes zero of its
own sign, or infinity, as IEEE 754 rounds it, and is reported. Weights in external files are read block by block and
converted when the model is written, so that no model has to fit into memory.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.formats import FORMATS
from parityscope.arithmetic.reading import BLOCK, blocks_of
from parityscope.arithmetic.rounding import round_to
from parityscope.arithmetic.scanning import float_numbers
from parityscope.case.graph import constant_value
from parityscope.light_dataclasses import dataclass, replace

HALF = {"f16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingLoss:
    """What rounding a constant destroys.

    `overflowing` finite values, up to `largest` in magnitude, become infinite, and `vanishing` nonzero ones become zero.
    """

    constant: str
    format_name: str
    elements: int
    overflowing: int
    largest: float
    vanishing: int


def fixed_constant(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of an initializer that no input overrides, or of a Constant node; None for anything else."""
    return None if value.is_graph_input() else constant_value(value)


def low_tensor(tensor: ir.TensorProtocol, format_name: str, name: str) -> tuple[ir.TensorProtocol, RoundingLoss]:
    """The tensor (float32 or float64) in a format, and what is lost by that."""

    def convert() -> ir.TensorProtocol:
        return _convert_tensor(tensor, format_name, name)

    if not isinstance(tensor, ir.ExternalTensor):
        return convert(), _measure_loss(tensor, format_name, name)
    written = Path(tensor.path).stat().st_mtime_ns
    place = str(tensor.path), written, tensor.offset, tensor.length, tensor.dtype, tuple(tensor.shape.numpy())
    shape = ir.Shape(tensor.shape.numpy())
    loss = replace(_loss_in_file(place, format_name), constant=name)
    return ir.LazyTensor(convert, dtype=HALF[format_name], shape=shape, name=name), loss


def _measure_loss(tensor: ir.TensorProtocol, format_name: str, name: str) -> RoundingLoss:
    numbers = float_numbers(blocks_of(tensor), (FORMATS[format_name],))
    loss = numbers.losses[format_name]
    return RoundingLoss(
        constant=name,
        format_name=format_name,
        elements=tensor.size,
        overflowing=loss.beyond,
        largest=abs(float(numbers.worst)) if loss.beyond else 0.0,
        vanishing=loss.vanished,
    )


@functools.lru_cache(maxsize=1 << 12)
def _loss_in_file(
    place: tuple[str, int, int | None, int | None, ir.DataType, tuple[int, ...]], format_name: str
) -> RoundingLoss:
    """What is lost of weights in a file (path, time, offset, length, type, shape): a model is typed more than once."""
    path, _, offset, length, dtype, shape = place
    folder, name = Path(path).parent, Path(path).name
    tensor = ir.ExternalTensor(name, offset, length, dtype, shape=ir.Shape(shape), name=name, base_dir=folder)
    return _measure_loss(tensor, format_name, name)


def _convert_tensor(tensor: ir.TensorProtocol, format_name: str, name: str) -> ir.TensorProtocol:
    converted = np.empty(tensor.size, HALF[format_name].numpy())
    for place, block in enumerate(blocks_of(tensor)):
        start = place * BLOCK
        # Of float64 rounded first: ml_dtypes would round it twice, by way of float32.
        exact = round_to(block, FORMATS[format_name]) if block.dtype == np.float64 else block
        with np.errstate(over="ignore", under="ignore"):
            converted[start : start + block.size] = exact.astype(converted.dtype)
    return ir.Tensor(converted.reshape(tensor.shape.numpy()), dtype=HALF[format_name], name=name)
