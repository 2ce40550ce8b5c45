"""Operators that multiply and accumulate: products, attention, recurrent layers."""

from __future__ import annotations

from parityscope.operators._records import Operator

__all__ = ["OPERATORS"]

OPERATORS = (
    Operator("CausalConvWithState", "product"),
    Operator("Conv", "product", inputs=("input", "weight", "bias"), multiplies=(0, 1), weight_axis=0, exactness="sums"),
    Operator(
        "ConvInteger",
        "product",
        inputs=("input", "weight", "input zero point", "weight zero point"),
        traits=("quantized",),
        base="Conv",
    ),
    Operator(
        "ConvTranspose",
        "product",
        inputs=("input", "weight", "bias"),
        multiplies=(0, 1),
        weight_axis=1,
        exactness="sums",
    ),
    Operator("DeformConv", "product", traits=("products inside",)),
    Operator("Det", "product"),
    Operator("Einsum", "product", multiplies=None, exactness="sums"),
    Operator("Gemm", "product", inputs=("input", "weight", "bias"), multiplies=(0, 1), weight_axis=1, exactness="sums"),
    Operator("MatMul", "product", inputs=("weight", "weight"), multiplies=(0, 1), weight_axis=-1, exactness="sums"),
    Operator(
        "MatMulInteger",
        "product",
        inputs=("input", "weight", "input zero point", "weight zero point"),
        traits=("quantized",),
        base="MatMul",
    ),
    Operator(
        "QLinearConv",
        "product",
        inputs=(
            "input",
            "input scale",
            "input zero point",
            "weight",
            "weight scale",
            "weight zero point",
            "output scale",
            "output zero point",
            "bias",
        ),
        traits=("quantized",),
        base="Conv",
    ),
    Operator(
        "QLinearMatMul",
        "product",
        inputs=(
            "input",
            "input scale",
            "input zero point",
            "weight",
            "weight scale",
            "weight zero point",
            "output scale",
            "output zero point",
        ),
        traits=("quantized",),
        base="MatMul",
    ),
    Operator("Attention", "attention", traits=("softmax inside", "products inside")),
    Operator("FlexAttention", "attention", domain="ai.onnx.preview", traits=("products inside",)),
    Operator("LinearAttention", "attention"),
    Operator(
        "GRU",
        "recurrent",
        inputs=("input", "weight", "recurrent weight", "bias"),
        multiplies=(1, 2),
        gates=3,
        activations=("Sigmoid", "Tanh"),
    ),
    Operator(
        "LSTM",
        "recurrent",
        inputs=("input", "weight", "recurrent weight", "bias"),
        multiplies=(1, 2),
        gates=4,
        activations=("Sigmoid", "Tanh", "Tanh"),
    ),
    Operator(
        "RNN",
        "recurrent",
        inputs=("input", "weight", "recurrent weight", "bias"),
        multiplies=(1, 2),
        gates=1,
        activations=("Tanh",),
    ),
)
