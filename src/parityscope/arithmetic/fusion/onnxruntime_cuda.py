"""ONNX Runtime's CUDA provider, on a model converted to float16: nearly every node is a kernel of its own.

The graph is typed, so that every tensor between two nodes is stored in float16, constants included; what is beyond the
range was saturated or became infinite when the model was converted, which the conversion decides and not the runtime.
The optimizer replaces some groups by one node (`onnxruntime/core/optimizer`), which then rounds once:

* Conv + BatchNormalization, and Conv + Mul or Add of a constant with one number for each channel in the shape (C, 1, 1)
  or (1, C, 1, 1) (`conv_bn_fusion`, `conv_mul_fusion`, `conv_add_fusion`): weights folded, in float16;
* Conv + Relu, and Conv + Add + Relu for a residual (`conv_activation_fusion`, `conv_add_act_fusion`): on CUDA Relu alone;
* decomposed GELU (`gelu_fusion`, `fast_gelu_fusion`; not `x · (1/2 · (1 + Erf))`, nor a
  cube written as products), also with the addition of a bias before (`bias_gelu_fusion`);
* `x · Sigmoid(x)` (`quick_gelu_fusion`);
* decomposed LayerNormalization with its scale and shift (`layer_norm_fusion`, `simplified_layer_norm_fusion`), computed in
  FP32 inside, and with the addition before it (`skip_layer_norm_fusion`);
* MatMul + Add of a vector becomes Gemm for matrices of two dimensions (`matmul_add_fusion`); products with a scalar around
  a MatMul of two tensors go into it (`matmul_scale_fusion`); Add + Softmax (`bias_softmax_fusion`).

Fusion of a whole attention needs operators in an order that few exporters write; it is not predicted. Multiplication
accumulates in FP32 (cuBLAS and cuDNN compute type of float16 kernels), but not in recurrent operators. A convolution's bias
is added in a second kernel by older versions; here it is one. On a CPU the same optimizer runs, with more activations behind
convolutions (Clip, Sigmoid, Tanh, LeakyRelu, HardSigmoid) and Gemm, and layouts of its own.

LSTM, GRU and RNN are handed to cuDNN with float16 as the type of their arithmetic: sums, gates and states are all rounded
(`recurrent.recurrence_of_format`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusionProfile, GraphFusion
from parityscope.arithmetic.fusion.layers import cut_into_layers
from parityscope.arithmetic.fusion.matching import data_inputs, is_static
from parityscope.arithmetic.fusion.patterns import fused_by
from parityscope.arithmetic.fusion.patterns.normalization import affine_nodes
from parityscope.arithmetic.recurrent import recurrence_of_format
from parityscope.case.graph import constant_value

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

_ON_CUDA = frozenset({"Relu"})


def _predict_fusion(model: ir.Model, precision: str) -> GraphFusion | None:
    if precision not in {"bf16", "f16"}:
        return None
    layers = cut_and_merged(model, _ON_CUDA)
    return GraphFusion(
        kernels=layers.kernels(lambda _: precision, lambda _: precision),
        default=precision,
        stores_constants=True,
        folds=True,
        recurrence=recurrence_of_format(precision),
    )


def cut_and_merged(model: ir.Model, activations: Collection[str]) -> FusedLayers:
    """The layers of ONNX Runtime's optimized graph; `activations` are those that it merges into convolutions."""
    layers = cut_into_layers(model, fused_by("onnxruntime-cuda"))
    for layer in layers.each():
        if layer.kind in {"LayerNormalization", "RMSNormalization"} and len(layer.nodes) > 1:
            for node in affine_nodes(layer.output):
                layers.merge(layer, layers.of[node])
    for layer in layers.each():
        if layer.kind == "Conv":
            _merge_convolution(layers, layer, activations)
        elif layer.kind == "MatMul":
            _merge_bias(layers, layer)
        elif layer.kind == "Add":
            _merge_addition(layers, layer)
    return layers


def _merge_convolution(layers: FusedLayers, layer: Layer, activations: Collection[str]) -> None:
    """BatchNormalization, a product and a sum with constants; then a residual with Relu, or an activation."""
    while (child := layers.only_child(layer)) is not None and _is_folded(layers, child):
        layers.merge(layer, child)
    child = layers.only_child(layer)
    if child is None:
        return
    if child.kind in activations:
        layers.merge(layer, child)
    elif child.kind == "Add" and len(layers.inputs(child)) == 2:
        relu = layers.only_child(child)
        if relu is not None and relu.kind == "Relu" and "Relu" in activations:
            layers.merge(layer, child)
            layers.merge(layer, relu)


def _is_folded(layers: FusedLayers, child: Layer) -> bool:
    if child.kind == "BatchNormalization":
        return True
    if child.kind not in {"Mul", "Add"} or len(child.nodes) != 1 or len(layers.inputs(child)) != 1:
        return False
    # Seen: a constant of shape (1,) behind a convolution stays a node, although it could be raised to its rank.
    shapes = [tensor.shape.numpy() for value in child.nodes[0].inputs if value and (tensor := constant_value(value))]
    return len(shapes) == 1 and (len(shapes[0]) == 0 or (len(shapes[0]) > 2 and max(shapes[0][-2:]) == 1))


def _merge_bias(layers: FusedLayers, layer: Layer) -> None:
    """The addition of a vector behind a product with constant weights of two dimensions."""
    weights = layer.nodes[0].inputs[1]
    rows = layer.nodes[0].inputs[0]
    child = layers.only_child(layer)
    flat = rows is not None and rows.shape is not None and len(rows.shape) == 2
    if weights is None or not is_static(weights) or child is None or not flat:
        return
    if child.kind == "Add" and len(child.nodes) == 1 and len(layers.inputs(child)) == 1:
        layers.merge(layer, child)


def _merge_addition(layers: FusedLayers, layer: Layer) -> None:
    """A bias before GELU; a mask before Softmax; two tensors before LayerNormalization."""
    child = layers.only_child(layer)
    tensors = len(data_inputs(layer.nodes[0]))
    wanted = {1: {"Gelu"}, 2: {"Softmax", "LayerNormalization", "RMSNormalization"}}
    if child is not None and child.kind in wanted.get(tensors, set()):
        layers.merge(layer, child)


PROFILE = FusionProfile(name="onnxruntime-cuda", title="ONNX Runtime on CUDA", predict=_predict_fusion)
