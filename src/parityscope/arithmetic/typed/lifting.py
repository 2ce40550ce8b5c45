"""The way back from a typed model: what it would compute without its low formats, and what it reads at its borders.

A model whose original is lost can still be held against itself: with every float16 and bfloat16 value made float32, and
with nothing quantized to float8. Its weights keep the numbers that they were rounded to, so that what rounding them cost
is not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from parityscope.arithmetic._quantizers import without_float8
from parityscope.arithmetic.detyping import retype_to_float
from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.graphs import Names, all_values, cast_node, prepend_nodes, redirect_uses
from parityscope.arithmetic.opsets import OLDEST, prepare_copy
from parityscope.arithmetic.typed.constants import HALF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.records import Skip


def low_formats(model: ir.Model) -> list[str]:
    """Which of "f16", "bf16" and "f8e4m3" the values of a model have by their own types, in this order."""
    infer_types(model)
    found = {value.dtype for value in all_values(model) if value.type is not None}
    known = {**HALF, "f8e4m3": ir.DataType.FLOAT8E4M3FN}
    return [name for name, dtype in known.items() if dtype in found]


def float32_copy(model: ir.Model) -> tuple[ir.Model, list[Skip]]:
    """A copy that computes and gives back float32 where `model` has float16, bfloat16 or float8; inputs keep their types.

    Also gives what could not be lifted: operators that may exist for their type only.

    Raises:
        ParityError: the opset is too old and cannot be converted up.
    """
    copy = prepare_copy(model, OLDEST)
    infer_types(copy)
    names = Names(copy)
    without_float8(copy, names)
    _, _, kept = retype_to_float(copy, names)
    graph = copy.graph
    for position, value in enumerate(graph.outputs):
        node = value.producer()
        if node is None or node.op_type != "Cast" or value.dtype not in HALF.values() or node.inputs[0] is None:
            continue
        name, source = str(value.name), node.inputs[0]
        graph.outputs[position] = source
        if not value.uses():
            graph.remove(node, safe=True)
            source.name = name
    return copy, kept


def read_as_float32(model: ir.Model, dtypes: Mapping[str, str]) -> bool:
    """Makes inputs of float16 and bfloat16 that `dtypes` (numpy names) calls float32 take that, by a Cast down.

    Edits `model`; says whether there were any.
    """
    names = Names(model)
    found = False
    for value in model.graph.inputs:
        if value.dtype not in HALF.values() or dtypes.get(str(value.name)) != "float32" or value.dtype is None:
            continue
        uses = list(value.uses())
        low, value.type = value.dtype, ir.TensorType(ir.DataType.FLOAT)
        node = cast_node(value, low, name := names.fresh(value.name, "read"), f"typed::{name}")
        redirect_uses(uses, node.outputs[0])
        prepend_nodes(model.graph, [node])
        found = True
    return found
