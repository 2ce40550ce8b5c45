"""OpenVINO's CPU plugin: oneDNN kernels with everything pointwise behind them, and an FP32 tail.

What is fused, in the plugin's own order (`intel_cpu/src/graph_optimizer.cpp`, and the common transformations before
it). The runtime's executed graph says which of it happened; this file predicts it from the ONNX graph alone:

* decomposed SiLU, HardSwish, HardSigmoid, GELU (not if its cube is written as products), Mish, LayerNormalization (as
  MVN) and RMSNormalization are recognised;
* a convolution takes BatchNormalization and constants for each channel into its weights, then any chain of unary
  operators and of constants for each channel; a bare one takes a residual addition and one activation behind it;
* a product with constant weights (FullyConnected) or of two tensors takes the same chain, but no residual;
* attention becomes one kernel (a "Subgraph"), Softmax inside it in FP32;
* two pointwise layers in a row become one, unless both read the same tensor.

In bfloat16 (`Graph::EnforceInferencePrecision` in `intel_cpu/src/graph.cpp`): every layer, except the tail, which is
everything from an output upwards to the first convolution, product, recurrence or resize; those run in bfloat16 and
write FP32. Constants stay FP32, those that are computed from constants too (dequantized embeddings), but for the weights
and biases of products, which are folded in FP32 before. Pointwise layers read what is fed to the graph unrounded. A few
operators exist in FP32 alone.

In float16 (`mark_subgraphs_to_keep_in_mixed_precision.cpp` in the common transformations): every constant is converted
first, saturated at ±65504. What divides by something with a small ε (decomposed normalizations) stays FP32, and Exp above
a sum (decomposed softmax), with all pointwise and data-moving operators that are connected with them through such
operators; what is given back is float16 even so. Operators are marked before anything is fused, and nothing is fused
across a mark. Its maxima lose NaN (seen: networks that are full of NaN give finite numbers).

Recurrent operators (oneDNN's) store the state between time steps in the format, and add up in FP32 (measured on LSTM and GRU).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parityscope.arithmetic.fusion import FusionProfile, GraphFusion
from parityscope.arithmetic.fusion._openvino_marks import sensitive_layers, tail_layers
from parityscope.arithmetic.fusion._openvino_rules import is_eltwise, merge_all
from parityscope.arithmetic.fusion.layers import cut_into_layers
from parityscope.arithmetic.fusion.matching import is_static
from parityscope.arithmetic.fusion.patterns import fused_by
from parityscope.arithmetic.recurrent import Recurrence

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.arithmetic.fusion.layers import Layer

# Layers for which the plugin has no kernel of lower precision: node type Math (seen in executed graphs), and others
# whose supported descriptors are FP32 alone (their node files).
_FLOAT32_ONLY = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Selu", "Sign"),
        *("Softsign", "Neg", "HardSigmoid", "Log", "GridSample", "NonMaxSuppression", "CumSum", "RMSNormalization"),
    }
)
# Layers that compute in bfloat16 and write FP32: spatial pooling by the plugin's Reduce (outputPrecisions of executed graphs).
_WRITES_FLOAT32 = frozenset({"GlobalAveragePool"})


def _predict_fusion(model: ir.Model, precision: str) -> GraphFusion | None:
    if precision not in {"bf16", "f16"}:
        return None
    layers = cut_into_layers(model, fused_by("openvino"))
    if precision == "f16":  # marked before anything is fused, and fused among its own kind
        layers = replace(layers, apart=frozenset(node for layer in sensitive_layers(layers) for node in layer.nodes))
    merge_all(layers)
    wide = (
        layers.apart if precision == "f16" else {node for layer in tail_layers(layers, model) for node in layer.nodes}
    )

    def runs_in(layer: Layer) -> str:
        # HardSigmoid as one ONNX node is a Math layer; put together from nodes it is pointwise.
        alone = layer.kind in _FLOAT32_ONLY and len(layer.nodes) == 1
        folded = precision == "bf16" and is_static(layer.output)
        return "f32" if layer.nodes[0] in wide or alone or folded else precision

    def writes(layer: Layer) -> str:
        if precision == "f16" and layer.output.is_graph_output():
            return precision
        pooled = precision == "bf16" and layer.kind in _WRITES_FLOAT32
        return "f32" if pooled else runs_in(layer)

    inputs = frozenset(str(value.name) for value in model.graph.inputs)
    return GraphFusion(
        kernels=layers.kernels(runs_in, writes, lambda layer: inputs if _is_pointwise(layer) else frozenset()),
        default=precision,
        stores_constants=precision == "f16",
        folds=True,
        overflow="saturate",
        keeps_nan=False,
        recurrence=Recurrence(stored=frozenset({"states"})),
    )


def _is_pointwise(layer: Layer) -> bool:
    return is_eltwise(layer) or layer.kind == "Attention"


PROFILE = FusionProfile(name="openvino", title="OpenVINO on the CPU", predict=_predict_fusion)
