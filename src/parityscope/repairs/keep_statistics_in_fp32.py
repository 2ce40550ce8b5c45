"""Keep the mean and variance of a BatchNormalization in FP32 while it computes in FP16 or BF16.

What it changes: since opset 15 the running mean and variance of a BatchNormalization may have another type than its
input. The node gets its input, scale and bias in the format (a Cast in front of it), its mean and variance stay FP32,
and a Cast behind it gives FP32 again. An older model is converted up to opset 15.

Why it repairs: the running variance may be far beyond FP16's range while everything that the node reads and writes is
not. It is the alternative to folding the node, for runtimes that look for it.

Risk: what flows through the node is rounded to the format, as in any model of that format. Runtimes that fold the node
themselves in FP16, and runtimes without a kernel for two types, gain nothing.

Cost: two Casts in a model that is FP32 around it; none in one that is of the format already.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "node" (or its site): the BatchNormalization; "format" (f16 or bf16; default f16).

Source: BatchNormalization version 15 in the ONNX operator specification (type constraints T, T1 and T2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic import format_named
from parityscope.arithmetic.graphs import set_input
from parityscope.arithmetic.standard import opset_of
from parityscope.repairs import Repair
from parityscope.repairs._editing import array_of, insert_before, nodes_of, remove_unread, replace_value
from parityscope.repairs._raising import adopt_copy, raise_opset

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic import Format
    from parityscope.records import Finding

_OPSET = 15
_FORMATS = frozenset({"f16", "bf16"})


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    number_format = format_named(str(finding.details.get("format", "f16")))
    names = [str(node.outputs[0].name) for node in nodes_of(model, finding) if node.op_type == "BatchNormalization"]
    before = opset_of(model)
    work = raise_opset(model, _OPSET) if names and number_format.name in _FORMATS else None
    if work is None:
        return None
    nodes = [node for node in work.graph if node.outputs and node.outputs[0].name == names[0]]
    if not nodes or not _type_statistics(work, nodes[0], number_format):
        return None
    adopt_copy(model, work)
    converted = f"; the model was converted from opset {before} to {_OPSET}" if before < _OPSET else ""
    return f"computes in {number_format.title} with its mean and variance in FP32{converted}"


def _type_statistics(model: ir.Model, node: ir.Node, number_format: Format) -> bool:
    import onnx_ir as ir

    from parityscope.trace import numpy_dtype

    parameters = [array_of(value) for value in node.inputs[1:5]]
    arrays = [array for array in parameters if array is not None and array.dtype == np.float32]
    source, output = node.inputs[0], node.outputs[0]
    if len(arrays) != 4 or len(node.outputs) != 1 or source is None or node.attributes.get_int("training_mode", 0) != 0:
        return False
    if any(float(np.abs(array).max(initial=0.0)) > number_format.largest for array in arrays[:2]):
        return False
    dtype = numpy_dtype(number_format.dtype)
    code = ir.DataType.from_numpy(dtype)
    low = insert_before(node, "Cast", [source], f"{output.name}::input", [ir.AttrInt64("to", int(code))])
    low.type = ir.TensorType(code)
    result = ir.Value(name=f"{output.name}::{number_format.name}", type=ir.TensorType(code), shape=output.shape)
    inner = ir.Node(
        "", "BatchNormalization", [low, *node.inputs[1:5]], list(node.attributes.values()), outputs=[result]
    )
    inner.name = node.name
    model.graph.insert_before(node, inner)
    wide = insert_before(node, "Cast", [result], f"{output.name}::wide", [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
    wide.type = ir.TensorType(ir.DataType.FLOAT)
    for position, array in enumerate(arrays[:2], start=1):
        set_input(model, inner, position, array.astype(dtype), f"{output.name}::parameter{position}")
    replace_value(output, wide)
    remove_unread(model, [node])
    return True


REPAIR = Repair(
    name="keep_statistics_in_fp32",
    title="Keep the mean and variance of a BatchNormalization in FP32",
    risk="runtimes that fold the node in FP16 themselves, or have no kernel for two types, gain nothing",
    cost="two Casts in a model that is FP32 around the node; none in one of the format",
    apply=_apply_repair,
)
