"""Lets NaN through maxima, as IEEE 754-2019 (maximum, section 9.6) and GPUs do and ONNX Runtime's CPU provider does not.

There, whether the largest of some elements is NaN depends on where the NaN stands among them (seen with ONNX Runtime
1.31: ReduceMax, GlobalMaxPool and MaxPool lose it, Max, Clip and Relu keep it). A network that is full of NaN in FP16
would come out of its last pooling with plausible numbers, and be called fine. With `y = MaxPool(x)` an output becomes

    y = Where(MaxPool(Cast(IsNaN(x))) > 0, NaN, MaxPool(x))

which are the same numbers bit for bit where there is no NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from parityscope.arithmetic.graphs import add_constant, give_back, redirect_uses
from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import computing_nodes, node_name
from parityscope.operators import with_trait

if TYPE_CHECKING:
    from parityscope.arithmetic.graphs import Names

# Operator -> the one that finds a NaN among the same elements.
_LOSES = {**{name: name for name in with_trait("loses NaN")}, "ReduceMin": "ReduceMax"}
NAN_DEPENDENT = frozenset(_LOSES)
_OPSET = 9  # the first with IsNaN and Where
_FLOATS: dict[ir.DataType, np.dtype[Any]] = {
    ir.DataType.FLOAT: np.dtype(np.float32),
    ir.DataType.DOUBLE: np.dtype(np.float64),
    ir.DataType.FLOAT16: np.dtype(np.float16),
}


def propagate_nans(model: ir.Model, names: Names) -> None:
    """Edits `model`, whose types are inferred, in place; models of opsets before 9 stay as they are."""
    if opset_of(model) < _OPSET:
        return
    losing = [node for node in model.graph.all_nodes() if node.op_type in _LOSES and node.domain in {"", "ai.onnx"}]
    if losing:
        # A node without a name goes by its place, which the new nodes would move.
        for index, node in enumerate(computing_nodes(model)):
            node.name = node_name(node, index)
    for node in losing:
        source, output = node.inputs[0], node.outputs[0]
        if source is not None and isinstance(source.type, ir.TensorType) and source.dtype in _FLOATS and output.name:
            _replace_maximum(node, source, output, model, names)


def _replace_maximum(node: ir.Node, source: ir.Value, output: ir.Value, model: ir.Model, names: Names) -> None:
    dtype = source.dtype
    if node.graph is None or dtype is None:
        raise ValueError(f"{node.name} belongs to no graph")
    nodes: list[ir.Node] = []

    def add(
        op_type: str, held: ir.DataType, *inputs: ir.Value | None, attributes: tuple[ir.Attr, ...] = ()
    ) -> ir.Value:
        name = names.fresh(output.name, op_type.lower())
        nodes.append(ir.Node("", op_type, inputs, attributes, num_outputs=1, name=f"parityscope::{name}"))
        made = nodes[-1].outputs[0]
        made.name, made.type = name, ir.TensorType(held)
        return made

    isnan = add("IsNaN", ir.DataType.BOOL, source)
    number = add(
        "Cast", ir.DataType.FLOAT, isnan, attributes=(ir.AttrInt64("to", int(ir.DataType.FLOAT)),)
    )  # no maximum of booleans before opset 20
    same = tuple(attribute for attribute in node.attributes.values())
    among = add(_LOSES[node.op_type], ir.DataType.FLOAT, number, *node.inputs[1:], attributes=same)
    zero, nan = (
        _scalar_constant(model, "zero", np.zeros((), np.float32)),
        _scalar_constant(model, f"nan_{dtype.name}", np.array(np.nan).astype(_FLOATS[dtype])),
    )
    kept = add("Where", dtype, add("Greater", ir.DataType.BOOL, among, zero), nan, output)
    for made in (isnan, number):
        made.shape = source.shape
    among.shape = nodes[-2].outputs[0].shape = kept.shape = output.shape
    where = nodes[-1]
    uses = [use for use in output.uses() if use[0] is not where]
    node.append(nodes)
    redirect_uses(uses, kept)
    give_back(output, kept)
    kept.name, output.name = output.name, names.fresh(output.name, "of numbers")


def _scalar_constant(model: ir.Model, suffix: str, number: np.ndarray) -> ir.Value:
    """A constant of the main graph, made once."""
    name = f"parityscope::{suffix}"
    if name not in model.graph.initializers:
        add_constant(model.graph, number, name)
    return model.graph.initializers[name]
