"""One rounding as a handful of ONNX nodes, for float16, bfloat16, float8 and TF32.

* Cast down and up, for formats that ONNX has. ONNX Runtime keeps such a pair between float32 nodes at every
  optimization level and rounds to nearest even, subnormals included (tested).
* For TF32 Veltkamp's splitting: in float32, with c = (2^13 + 1)·x, c - (c - x) is x rounded to 24 - 13 = 11 bits, to nearest
  even (T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18,
  1971, section 4). It is done on k, which is x clipped to ±2^113, because c overflows from 2^115 on; then k - x is
  taken off again, which is +0 inside (so that even -0 stays what it is) and exact outside: x is a multiple of 2^90
  there, and so is k. Numbers from 2^113 on, infinities and NaN thus pass unrounded. Below 2^-126 the 11 bits are
  counted from the leading one and not on TF32's fixed grid; both are within 2^-137 of x. In float64 c = (2^42 + 1)·x,
  since 53 - 42 = 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.arithmetic._graphs import Names
    from parityscope.arithmetic.formats import Format
    from parityscope.arithmetic.rounding import Overflow

__all__ = ["Rewriting", "rounding_nodes"]

_CAST_TYPES = {
    "f32": ir.DataType.FLOAT,
    "f16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
    "f8e4m3": ir.DataType.FLOAT8E4M3FN,
    "f8e5m2": ir.DataType.FLOAT8E5M2,
}
_SPLITTERS = {np.dtype(np.float32): 2.0**13 + 1.0, np.dtype(np.float64): 2.0**42 + 1.0}
_SPLIT_LIMIT = 2.0**113


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """The model that is being edited, the names taken in it, and what becomes of numbers beyond a format's range.

    `overflow` counts for constants of every format, but for tensors in float8 alone: what ONNX calls saturation there.
    """

    model: ir.Model
    names: Names
    overflow: Overflow


def rounding_nodes(value: ir.Value, number_format: Format, rounded: str, work: Rewriting) -> list[ir.Node]:
    """Nodes, in order, that round `value`; the output of the last is called `rounded`."""
    if number_format.name == "tf32":
        nodes = _split(value, rounded, work)
    else:
        nodes = _cast_pair(value, number_format, rounded, work)
    nodes[-1].outputs[0].shape = value.shape
    return nodes


def _cast_pair(value: ir.Value, number_format: Format, rounded: str, work: Rewriting) -> list[ir.Node]:
    low = ir.TensorType(_CAST_TYPES[number_format.name])
    attributes = [ir.AttrInt64("to", int(low.dtype))]
    if number_format.saturating:
        attributes.append(ir.AttrInt64("saturate", int(work.overflow == "saturate")))
    down = _node("Cast", [value], work.names.fresh(value.name, number_format.name), low, attributes)
    dtype = value.dtype or ir.DataType.FLOAT
    return [down, _node("Cast", down.outputs, rounded, value.type, [ir.AttrInt64("to", int(dtype))])]


def _split(value: ir.Value, rounded: str, work: Rewriting) -> list[ir.Node]:
    dtype = np.dtype(np.float64 if value.dtype == ir.DataType.DOUBLE else np.float32)
    numbers = {"splitter": _SPLITTERS[dtype], "minimum": -_SPLIT_LIMIT, "maximum": _SPLIT_LIMIT}
    splitter, low, high = (_scalar(work.model, name, np.array(number, dtype)) for name, number in numbers.items())
    nodes: list[ir.Node] = []

    def add(op_type: str, *inputs: ir.Value, name: str = "") -> ir.Value:
        nodes.append(_node(op_type, inputs, name or work.names.fresh(value.name, op_type.lower()), value.type))
        return nodes[-1].outputs[0]

    clipped = add("Clip", value, low, high)
    scaled = add("Mul", clipped, splitter)
    head = add("Sub", scaled, add("Sub", scaled, clipped))
    add("Sub", head, add("Sub", clipped, value), name=rounded)
    return nodes


def _scalar(model: ir.Model, title: str, number: np.ndarray) -> ir.Value:
    """A constant of the main graph, made once for each type."""
    name = f"parityscope::{title}" + ("::double" if number.dtype == np.float64 else "")
    if name not in model.graph.initializers:
        tensor = ir.tensor(number, name=name)
        made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([]), const_value=tensor)
        model.graph.register_initializer(made)
    return model.graph.initializers[name]


def _node(
    op_type: str,
    inputs: Sequence[ir.Value],
    output: str,
    output_type: ir.TypeProtocol | None,
    attributes: list[ir.Attr] | None = None,
) -> ir.Node:
    node = ir.Node("", op_type, inputs, attributes or [], num_outputs=1, name=f"parityscope::{output}")
    node.outputs[0].name = output
    node.outputs[0].type = output_type
    return node
