"""TensorRT, strongly typed, from its published rules. NOT RUN: no TensorRT engine was compared with this file.

Source: NVIDIA, "TensorRT Developer Guide" (10.x), section "Types of Fusions" (supported layer fusions, pointwise fusions,
Q/DQ fusions), and the inspector output that the guide prints. From there:

* convolution, deconvolution and product + bias, scale (BatchNormalization) and one activation; "ElementWise Sum" of a
  residual goes into the convolution, and an activation behind it;
* any chain of pointwise layers becomes one PointWise kernel ("PointWise fusion"), also behind a convolution through
  the kernels that the builder generates (SiLU, HardSwish, GELU);
* "Reduce" and pointwise operators between them, that is a decomposed normalization, become one kernel, whose
  intermediates have the type that the graph gives them; Softmax computes in FP32;
* attention (product, scale, mask, Softmax, product) becomes one kernel, the probabilities rounded for its second product;
* shuffles (Transpose, Reshape) move without rounding anew.

* recurrent operators become a loop of layers ("ILoop"): products and the state are tensors between kernels, the gates are one
  PointWise kernel.

Of files with quantizers (Q/DQ) the guide says that a product with DequantizeLinear before it runs in eight bits. What else is in
which kernel was read off the engines that TensorRT-RTX 1.7.1 builds of one model (docs/tensorrt.md has others):

* DequantizeLinear is part of the product that alone reads it, for weights too;
* QuantizeLinear is not part of a convolution's kernel; directly behind another product it is, and ends it;
* elsewhere both are pointwise, so that "Q, DQ, Relu, Q" between two products is one kernel.

Published layers of engines agree: ResNet-50's in the guide, ResNet-18's in github.com/NVIDIA/TensorRT issue 4020, but for a
MaxPool that is fused too and rounds nothing (tested).

Strong typing keeps the types of the graph at the borders of kernels. Constants beyond the range of the format are saturated
to its largest finite number. Weights are folded in FP32, before they are rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusionProfile, GraphFusion
from parityscope.arithmetic.fusion.layers import cut_into_layers
from parityscope.arithmetic.fusion.matching import POINTWISE, PRODUCTS
from parityscope.arithmetic.fusion.patterns import activation_kinds, fused_by
from parityscope.arithmetic.recurrent import Recurrence

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import FusedLayers, Layer

__all__ = ["PROFILE"]

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})


def _predict_fusion(model: ir.Model, precision: str) -> GraphFusion | None:
    if precision not in {"bf16", "f16"}:
        return None
    layers = cut_into_layers(model, fused_by("tensorrt"))
    _merge_dequantizers(layers)
    pointwise = POINTWISE | {"BatchNormalization"} | activation_kinds()
    with_quantizers = pointwise | {_QUANTIZE, _DEQUANTIZE}
    for kinds, taken in ((PRODUCTS, pointwise), (_NORMS, with_quantizers), (with_quantizers, with_quantizers)):
        for layer in layers.each():
            if layer.kind not in kinds or layer not in layers.of.values():
                continue
            if not (kinds is PRODUCTS and _take_quantizer(layers, layer)):
                _merge_pointwise(layers, layer, taken)
    return GraphFusion(
        kernels=layers.kernels(lambda _: precision, lambda _: precision),
        default=precision,
        stores_constants=False,
        folds=True,
        overflow="saturate",
        recurrence=Recurrence(stored=frozenset({"states", "products"})),
    )


def _merge_dequantizers(layers: FusedLayers) -> None:
    """Makes each DequantizeLinear a part of the product that alone reads it."""
    for layer in layers.each():
        if layer.kind == _DEQUANTIZE and (product := layers.only_child(layer)) is not None and product.kind in PRODUCTS:
            layers.merge(layer, product)
            layer.kind, layer.merged = product.kind, product.merged


def _take_quantizer(layers: FusedLayers, product: Layer) -> bool:
    """Merges the QuantizeLinear that alone reads a product other than a convolution; whether there is one."""
    child = layers.only_child(product)
    if product.kind == "Conv" or child is None or child.kind != _QUANTIZE:
        return False
    layers.merge(product, child)
    return True


def _merge_pointwise(layers: FusedLayers, layer: Layer, pointwise: frozenset[str]) -> None:
    """The pointwise layers behind, as long as each alone reads what is before it."""
    while (child := layers.only_child(layer)) is not None and child.kind in pointwise and not child.merged:
        layers.merge(layer, child)


PROFILE = FusionProfile(name="tensorrt", title="TensorRT, strongly typed (not run)", predict=_predict_fusion)
