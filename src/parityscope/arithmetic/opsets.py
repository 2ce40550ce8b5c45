"""A graph in the form that the simulation rewrites: an opset that has the Cast it needs, and constants as initializers.

Functions are inlined.
Old opsets are converted up by ONNX's own converter (`onnx.version_converter`). Weights step aside for that, so that
a model of any size passes through it, and come back by name.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import shape_inference, version_converter
from onnx_ir.passes import common

from parityscope.arithmetic.standard import opset_of
from parityscope.case.graph import held_tensor
from parityscope.errors import ParityError

_SMALL = 1024  # bytes; the converter looks into small constants (axes, scales), never into weights. Chosen.
OLDEST = 7  # the oldest opset that ONNX Runtime runs
# The first input of its Scan is the lengths of sequences and its data has a batch axis; opset 9 gave it another meaning,
# and the converter passes it on unchanged.
BATCHED_SCAN = 8
_IR_VERSION = 9  # the first that may hold float8 (ONNX 1.14); all runtimes of interest read it


def prepare_copy(model: ir.Model, opset: int) -> ir.Model:
    """A copy of `model` of at least `opset`, without functions and with constants as initializers where possible.

    Raises:
        ParityError: the model's opset cannot be converted up.
    """
    model.graph.sort()  # some converters append their Casts at the end; that is no order to clone or to walk in
    return prepare_in_place(model.clone(), opset)


def prepare_in_place(model: ir.Model, opset: int) -> ir.Model:
    """As `prepare_copy`, out of `model` itself, of which nothing can be used any more.

    Raises:
        ParityError: as `prepare_copy`.
    """
    model.graph.sort()
    copy = model
    for change in (common.InlinePass(), common.RemoveInitializersFromInputsPass()):
        copy = change(copy).model
    copy = _lift_constants(copy)
    copy.ir_version = max(copy.ir_version or 0, _IR_VERSION)  # before IR version 4 weights had to be inputs as well
    if not {"", "ai.onnx"} & set(copy.opset_imports):  # no node of ONNX's own domain, so any opset will do
        copy.opset_imports[""] = opset
    elif opset_of(copy) < opset:
        copy = _lift_constants(_convert_opset(copy, opset))
    return copy


def _lift_constants(model: ir.Model) -> ir.Model:
    """Constants as initializers where possible, in place.

    onnx_ir's own pass asks of each tensor whether it follows a protocol, which takes longer than everything else here.
    """
    for graph in model.graphs():
        for node in [one for one in graph if one.op_type == "Constant" and one.domain in {"", "ai.onnx"}]:
            value = node.outputs[0]
            tensor = held_tensor(node)
            if tensor is None or value.is_graph_output():
                continue
            lifted = ir.Value(
                name=value.name,
                shape=ir.Shape(tensor.shape.numpy()),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
            graph.register_initializer(lifted)
            value.replace_all_uses_with(lifted)
            graph.remove(node, safe=True)
    return model


def _convert_opset(model: ir.Model, opset: int) -> ir.Model:
    if opset_of(model) == BATCHED_SCAN and any(node.op_type == "Scan" for node in model.graph.all_nodes()):
        raise ParityError(
            "Scan of opset 8 loops over a batch as well, and cannot be converted to the Scan of later opsets",
            fix="export the model again with opset 9 or newer",
        )
    weights: dict[str, ir.TensorProtocol] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.nbytes > _SMALL:
            weights[name] = tensor
            model.graph.initializers.pop(name)
            model.graph.inputs.append(value)
        elif isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.tensor(tensor.numpy(), name=name)
    try:
        proto = version_converter.convert_version(ir.to_proto(model), opset)
    except (
        RuntimeError,
        ValueError,
        TypeError,
        onnx.checker.ValidationError,
        version_converter.ConvertError,
        shape_inference.InferenceError,
    ) as error:
        raise ParityError(
            f"opset {opset_of(model)} cannot be converted to {opset}, which the simulation needs: {error}",
            fix=f"export the model again with opset {opset} or newer",
        ) from error
    converted = ir.from_proto(proto)
    for value in [value for value in converted.graph.inputs if value.name in weights]:
        converted.graph.inputs.remove(value)
        value.const_value = weights[str(value.name)]
        converted.graph.register_initializer(value)
    return converted
