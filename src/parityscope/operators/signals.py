"""Operators of images, signals, texts and training."""

from __future__ import annotations

from parityscope.operators._records import Operator

OPERATORS = (
    Operator("AffineGrid", "resampling", inputs=("input", "shape")),
    Operator("Col2Im", "resampling"),
    Operator("GridSample", "resampling", exactness="faithful", ulps=2.0),
    Operator("ImageDecoder", "resampling"),
    Operator(
        "Resize", "resampling", inputs=("input", "region", "resize scales", "sizes"), exactness="faithful", ulps=2.0
    ),
    Operator(
        "Upsample", "resampling", inputs=("input", "resize scales"), scales_with=(0,), exactness="faithful", ulps=2.0
    ),
    Operator("DFT", "spectrum", inputs=("input", "length", "axis")),
    Operator("STFT", "spectrum", inputs=("signal", "step", "window", "length")),
    Operator("RotaryEmbedding", "embedding"),
    Operator("RegexFullMatch", "text", exactness="exact"),
    Operator("StringConcat", "text", exactness="exact"),
    Operator("StringNormalizer", "text", exactness="exact"),
    Operator("StringSplit", "text", exactness="exact"),
    Operator("TfIdfVectorizer", "text"),
    Operator("Adagrad", "training", domain="ai.onnx.preview.training"),
    Operator("Adam", "training", domain="ai.onnx.preview.training"),
    Operator(
        "Dropout",
        "training",
        inputs=("input", "ratio", "training mode"),
        scales_with=(0,),
        exactness="exact",
        traits=("passes on",),
    ),
    Operator("Gradient", "training", domain="ai.onnx.preview.training"),
    Operator("Momentum", "training", domain="ai.onnx.preview.training"),
    Operator("NegativeLogLikelihoodLoss", "training"),
    Operator("SoftmaxCrossEntropyLoss", "training"),
)
