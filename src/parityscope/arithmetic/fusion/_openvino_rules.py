"""OpenVINO's merging rules; `fusion/openvino.py` says where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion.folding import linear_chain
from parityscope.arithmetic.fusion.matching import PRODUCTS, data_inputs, is_static
from parityscope.case.graph import constant_value

if TYPE_CHECKING:
    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

# Layers that take pointwise operators behind them, besides convolutions and products.
_TAKES_SIMPLE = frozenset(
    {"GlobalAveragePool", "NormalizeL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Resize"}
)
# ONNX operators of one input that are Eltwise layers there, and what patterns make such layers.
_UNARY = frozenset(
    {
        *(
            "Abs",
            "Ceil",
            "Clip",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "GeluInner",
            "HardSwish",
            "LeakyRelu",
            "Mish",
            "Reciprocal",
            "Relu",
        ),
        *("Round", "Sigmoid", "Silu", "Softplus", "Sqrt", "Swish", "Tanh"),
    }
)
_BINARY = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"})
# Pointwise layers of two inputs for which it matters which of them the layer above is.
_ORDERED = frozenset({"Div", "PRelu", "Pow", "Sub"})
_ACTIVATIONS_OF_SUM = frozenset(
    {"Clip", "Elu", "Gelu", "GeluInner", "HardSwish", "Mish", "Relu", "Sigmoid", "Silu", "Swish", "Tanh"}
)


def is_eltwise(layer: Layer) -> bool:
    """Whether a layer is one of OpenVINO's Eltwise layers."""
    if layer.kind == "HardSigmoid":
        return len(layer.nodes) > 1
    return layer.kind in _UNARY | _BINARY


def is_product(layer: Layer) -> bool:
    """Whether a layer multiplies and accumulates."""
    return layer.kind in PRODUCTS


def merge_all(layers: FusedLayers) -> None:
    """Applies the rules, in the order in which the plugin does."""
    for layer in layers.each():
        if is_product(layer):
            _merge_folded(layers, layer)
    for layer in layers.each():
        if layer.kind in {"Conv", "Gemm", "MatMul"} | _TAKES_SIMPLE:
            _merge_simple(layers, layer)
    for layer in layers.each():
        if layer.kind == "Add":
            _merge_sum(layers, layer)
    for layer in layers.each():
        if is_eltwise(layer) and layer in layers.of.values():
            _merge_pointwise(layers, layer)


def _merge_folded(layers: FusedLayers, layer: Layer) -> None:
    """Constants for each output channel behind a product go into its weights and bias."""
    weights = layer.nodes[0].inputs[1]
    if weights is None or not is_static(weights):
        return
    for node, _ in linear_chain(layer.nodes[0], lambda user: user in layers.of):
        child = layers.of[node]
        if len(child.nodes) != 1 or layers.only_child(layer) is not child:
            return
        layers.merge(layer, child)
        layer.merged.clear()  # folded away: what follows finds a bare product


def _merge_simple(layers: FusedLayers, layer: Layer) -> None:
    """The chain of unary operators, and of those with a constant for each channel, behind a layer."""
    while (child := layers.only_child(layer)) is not None and _is_simple(layers, layer, child):
        layers.merge(layer, child)


def _is_simple(layers: FusedLayers, layer: Layer, child: Layer) -> bool:
    if not is_eltwise(child) or len(layers.inputs(child)) != 1 or child.merged:
        return False
    if child.kind in _UNARY or child.kind == "HardSigmoid":
        return True
    node = child.nodes[0]
    if child.kind == "Pow" or (child.kind in _ORDERED and node.inputs[0] is not layer.output):
        return False
    constant = next((value for value in node.inputs if value is not None and is_static(value)), None)
    tensor = None if constant is None else constant_value(constant)
    return tensor is not None and _is_per_channel(tuple(int(dim) for dim in tensor.shape.numpy()), layer)


def _is_per_channel(shape: tuple[int, ...], layer: Layer) -> bool:
    """Whether a constant is one number, or one for each channel where the layer's kind has them.

    Channels are dimension 1 (`Node::canBePerformedAsScaleShift`), the last one of products of matrices.
    """
    wide = [axis for axis, dim in enumerate(shape) if dim != 1]
    if not wide:
        return True
    if layer.kind in {"Gemm", "MatMul"}:
        return wide == [len(shape) - 1]
    return len(wide) == 1 and len(shape) - wide[0] == 3


def _merge_sum(layers: FusedLayers, layer: Layer) -> None:
    """A residual addition goes into the bare convolution above, and one activation with it."""
    parents = layers.parents(layer)
    if len(parents) != 2 or len(layer.nodes) != 1 or layer.merged:
        return
    for parent in parents:
        if parent is None or parent.kind != "Conv" or parent.merged or layers.only_child(parent) is not layer:
            continue
        if any(value in layers.inputs(parent) for value in layers.inputs(layer)):
            continue
        layers.merge(parent, layer)
        child = layers.only_child(parent)
        if child is not None and child.kind in _ACTIVATIONS_OF_SUM and not child.merged:
            layers.merge(parent, child)
        _merge_simple(layers, parent)
        return


def _merge_pointwise(layers: FusedLayers, layer: Layer) -> None:
    """Pointwise layers in a row, unless the second reads what the first reads too, or the outcome of a Split."""
    while (child := layers.only_child(layer)) is not None and is_eltwise(child) and not child.merged:
        shared = set(layers.inputs(layer)) & set(layers.inputs(child))
        split = any(parent is not None and parent.kind == "Split" for parent in layers.parents(child))
        first = child.nodes[0].inputs[0]
        # x - y becomes x + (-1)·y before (ConvertSubtract), so that for Sub the place does not matter.
        swapped = (
            child.kind in _ORDERED - {"Sub"} and first is not layer.output and len(data_inputs(child.nodes[0])) > 1
        )
        if shared or split or swapped:
            return
        layers.merge(layer, child)
