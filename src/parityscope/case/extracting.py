"""A part of a graph as a model of its own: from tensors whose values are known to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.case.cutting import name_nodes, write_graph
from parityscope.case.graph import value_by_name
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import onnx_ir as ir

    from parityscope.case.model import Model


def extract_part(
    model: Model,
    inputs: Mapping[str, tuple[str, np.ndarray]],
    outputs: Mapping[str, tuple[str, np.ndarray]],
    path: Path,
) -> Model:
    """Writes what computes `outputs` from `inputs` to `path`, a model with static shapes.

    `inputs` are tensors of the model, each with its name in the part and an array of the dtype and shape that it takes there;
    one that the model holds in another type is cast, and one that it does not have becomes an input that nothing reads.
    `outputs` are tensors likewise, with an array of the type that one has which the model says none of.
    Unnamed nodes get the names that they have in the whole graph.

    Raises:
        ParityError: the outputs need more than these inputs, or the part cannot be written as a model.
    """
    import onnx_ir as ir

    whole = model.graph()
    whole.graph.sort()
    name_nodes(whole)
    known = value_by_name(whole)
    present = [name for name in inputs if name in known]
    try:
        part = ir.convenience.extract(whole.graph, present, list(outputs))
    except ValueError as error:
        raise ParityError(f"a part of {model.path.name} cannot be cut out: {error}", where=str(model.path)) from error
    for node in part:
        for value in node.outputs:
            value.shape = None  # of other sizes than those that come in now
    entering = dict(zip(present, list(part.inputs), strict=True))
    part.inputs.clear()
    for name, (called, array) in inputs.items():
        part.inputs.append(_input_of_part(part, entering.get(name), called, array))
    for value, (called, array) in zip(part.outputs, outputs.values(), strict=True):
        value.name = called
        value.type = value.type or ir.TensorType(ir.tensor(array).dtype)
        value.shape = ir.Shape([None] * array.ndim)  # the other side's may be another
    small = ir.Model(part, ir_version=whole.ir_version or 8, functions=list(whole.functions.values()))
    return write_graph(small, path)


def _input_of_part(part: ir.Graph, value: ir.Value | None, called: str, array: np.ndarray) -> ir.Value:
    """The input of the part that takes arrays like this one, with a Cast behind it where `value` is of another type."""
    import onnx_ir as ir

    given = ir.tensor(array)
    kind, shape = ir.TensorType(given.dtype), ir.Shape(array.shape)
    if value is None:
        return ir.Value(name=called, type=kind, shape=shape)
    if value.dtype is None or value.dtype == given.dtype:
        value.name, value.type, value.shape = called, kind, shape
        return value
    outside = ir.Value(name=called, type=kind, shape=shape)
    cast = ir.Node("", "Cast", [outside], [ir.AttrInt64("to", int(value.dtype))], num_outputs=1, name=f"{called}::cast")
    cast.outputs[0].name, cast.outputs[0].type = f"{called}::cast", value.type
    for user, index in tuple(value.uses()):
        user.replace_input_with(index, cast.outputs[0])
    if len(part):
        part.insert_before(part[0], [cast])
    else:
        part.append(cast)
    return outside
