"""A graph raised to an opset that has an operator, by ONNX's own converter; and the shapes that ONNX infers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.standard import opset_of
from parityscope.errors import ParityError

if TYPE_CHECKING:
    import onnx_ir as ir


def raise_opset(model: ir.Model, opset: int) -> ir.Model | None:
    """`model` itself if it has at least `opset`, else a converted copy for `adopt_copy`; None where the converter cannot.

    Nodes and values of a copy are new objects, functions are inlined, and Constant nodes have become initializers.
    """
    if opset_of(model) >= opset:
        return model
    from onnx import helper

    from parityscope.arithmetic.opsets import prepare_copy

    try:
        copy = prepare_copy(model, opset)
    except ParityError:
        return None
    if [value.name for value in copy.graph.inputs] != _fed_inputs(model):
        return None
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", opset)], ignore_unknown=True)
    copy.ir_version = max(copy.ir_version or 0, needed)
    return copy


def adopt_copy(model: ir.Model, copy: ir.Model) -> None:
    """Makes `model` what `copy` is, in place; nothing to do where they are one."""
    if copy is model:
        return
    model.graph = copy.graph
    model.ir_version = copy.ir_version
    model.functions.clear()


def shapes_of(model: ir.Model) -> dict[str, tuple[int | None, ...]]:
    """The shapes that ONNX's inference gives, by name of value; None for a dimension that is not known.

    What the inference cannot do is left out: a repair that needs it then does nothing.
    """
    from onnx_ir.passes import common

    model.graph.sort()
    inferred = common.ShapeInferencePass()(model.clone()).model
    values = [*inferred.graph.inputs, *(value for node in inferred.graph for value in node.outputs)]
    return {
        str(value.name): tuple(dim if isinstance(dim, int) else None for dim in value.shape)
        for value in values
        if value.shape is not None
    }


def _fed_inputs(model: ir.Model) -> list[str | None]:
    held = set(model.graph.initializers)
    return [value.name for value in model.graph.inputs if value.name not in held]
