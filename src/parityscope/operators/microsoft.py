"""Operators that ONNX Runtime adds (domain com.microsoft), as far as more is known of them than their names.

source: docs/ContribOperators.md of microsoft/onnxruntime, and the schemas that ONNX Runtime 1.31 registers.
`SimplifiedLayerNormalization` is in neither list of that domain: ONNX Runtime writes it under ONNX's own.
"""

from __future__ import annotations

from parityscope.operators._records import Operator

_DOMAIN = "com.microsoft"
OPERATORS = (
    Operator("Attention", "attention", domain=_DOMAIN, typed_like=0),
    Operator("GroupQueryAttention", "attention", domain=_DOMAIN, traits=("softmax inside",), typed_like=0),
    Operator(
        "MultiHeadAttention", "attention", domain=_DOMAIN, traits=("softmax inside", "products inside"), typed_like=0
    ),
    Operator("FusedConv", "product", domain=_DOMAIN, multiplies=(0, 1), weight_axis=0, base="Conv", typed_like=0),
    Operator("FusedGemm", "product", domain=_DOMAIN, multiplies=(0, 1), weight_axis=1, base="Gemm", typed_like=0),
    Operator("FusedMatMul", "product", domain=_DOMAIN, multiplies=(0, 1), weight_axis=-1, base="MatMul", typed_like=0),
    Operator("GemmFastGelu", "product", domain=_DOMAIN, typed_like=0),
    Operator("MatMulNBits", "product", domain=_DOMAIN, packs=(1,)),
    Operator("NhwcConv", "product", domain=_DOMAIN, typed_like=0),
    Operator("NhwcFusedConv", "product", domain=_DOMAIN, multiplies=(0, 1), weight_axis=0, base="Conv", typed_like=0),
    Operator("QGemm", "product", domain=_DOMAIN, base="Gemm"),
    Operator("TransposeMatMul", "product", domain=_DOMAIN, typed_like=0),
    Operator("GroupNorm", "normalization", domain=_DOMAIN, typed_like=0),
    Operator("SimplifiedLayerNormalization", "normalization", domain=_DOMAIN, base="RMSNormalization", typed_like=0),
    Operator("SkipGroupNorm", "normalization", domain=_DOMAIN, typed_like=0),
    Operator("SkipLayerNormalization", "normalization", domain=_DOMAIN, base="LayerNormalization", typed_like=0),
    Operator("SkipSimplifiedLayerNormalization", "normalization", domain=_DOMAIN, typed_like=0),
    Operator("BiasSoftmax", "softmax", domain=_DOMAIN, typed_like=0),
    Operator("BiasGelu", "activation", domain=_DOMAIN, base="Gelu", typed_like=0),
    Operator("BiasSplitGelu", "activation", domain=_DOMAIN, typed_like=0),
    Operator("FastGelu", "activation", domain=_DOMAIN, traits=("pointwise",), base="Gelu", typed_like=0),
    Operator("Gelu", "activation", domain=_DOMAIN, typed_like=0),
    Operator("QuickGelu", "activation", domain=_DOMAIN, traits=("pointwise",), typed_like=0),
    Operator("BiasAdd", "arithmetic", domain=_DOMAIN, typed_like=0),
    Operator("QLinearAdd", "arithmetic", domain=_DOMAIN, base="Add"),
    Operator("RotaryEmbedding", "embedding", domain=_DOMAIN, typed_like=0),
)
