"""A fused kernel applies the activation before it adds the bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proving.faults.changing import altered, constant, nodes_of
from proving.faults.records import Fault, NoEffectError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from proving.faults.records import Bed, Plant

_RANK = 2  # axes behind the channels, of pictures and spectra


def _edit(model: onnx.ModelProto, draw: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    import onnx

    for node in nodes_of(model, draw, "Relu", "Tanh", "Sigmoid"):
        adding = next((one for one in model.graph.node if node.input[0] in one.output), None)
        if adding is None or sum(node.input[0] in one.input for one in model.graph.node) != 1:
            continue
        if adding.op_type == "Conv" and len(adding.input) > 2 and constant(model, adding.input[2]) is not None:
            return _behind_convolution(model, adding, node)
        if adding.op_type != "Add" or constant(model, adding.input[1]) is None:
            continue
        source, between, result = adding.input[0], f"{node.output[0]}_early", node.output[0]
        node.input[0], node.output[0] = source, between
        adding.input[0], adding.output[0] = between, result
        place = list(model.graph.node).index(adding)
        moved = onnx.NodeProto()
        moved.CopyFrom(node)
        model.graph.node.remove(node)
        model.graph.node.insert(place, moved)
        return f"{result}: the activation is applied before the bias", (result,)
    raise NoEffectError("no activation stands behind a bias")


def _behind_convolution(
    model: onnx.ModelProto, convolution: onnx.NodeProto, activation: onnx.NodeProto
) -> tuple[str, tuple[str, ...]]:
    """The bias of a convolution added behind its activation. What stands between has no name that the original knows."""
    import onnx

    result, raw, early = activation.output[0], f"{convolution.output[0]}_fused", f"{activation.output[0]}_fused"
    bias = constant(model, convolution.input[2])
    if bias is None:
        raise NoEffectError("the bias is no constant")
    shaped = onnx.numpy_helper.from_array(bias.reshape(-1, *[1] * _RANK), f"{result}_bias")
    model.graph.initializer.append(shaped)
    del convolution.input[2]
    convolution.output[0], activation.input[0], activation.output[0] = raw, raw, early
    place = list(model.graph.node).index(activation)
    model.graph.node.insert(place + 1, onnx.helper.make_node("Add", [early, f"{result}_bias"], [result]))
    return f"{result}: the activation is applied before the convolution's bias", (result,)


def _plant(bed: Bed) -> Plant:
    return altered(bed, _edit)


FAULT = Fault(
    title="Activation before the bias",
    family="fusion",
    expected="FUS002",
    subjects=("small-rows", "ocr-det", "dnsmos", "small-conv", "pitch"),
    plant=_plant,
)
