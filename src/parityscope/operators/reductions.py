"""Operators that make one number of many: reductions, pooling, normalizations, softmax, selection."""

from __future__ import annotations

from parityscope.operators._records import Operator

__all__ = ["OPERATORS"]

OPERATORS = (
    Operator("ReduceL1", "reduction", inputs=("input", "axes"), scales_with=(0,), exactness="sums"),
    Operator("ReduceL2", "reduction", inputs=("input", "axes"), scales_with=(0,), exactness="sums"),
    Operator("ReduceLogSum", "reduction", inputs=("input", "axes"), exactness="faithful", ulps=3.0),
    Operator(
        "ReduceLogSumExp", "reduction", inputs=("input", "axes"), exactness="sums", ulps=6.0, traits=("softmax inside",)
    ),
    Operator(
        "ReduceMax",
        "reduction",
        inputs=("input", "axes"),
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements", "loses NaN", "largest"),
    ),
    Operator("ReduceMean", "reduction", inputs=("input", "axes"), scales_with=(0,), exactness="sums"),
    Operator(
        "ReduceMin",
        "reduction",
        inputs=("input", "axes"),
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements", "loses NaN", "smallest"),
    ),
    Operator("ReduceProd", "reduction", inputs=("input", "axes")),
    Operator("ReduceSum", "reduction", inputs=("input", "axes"), scales_with=(0,), exactness="sums"),
    Operator("ReduceSumSquare", "reduction", inputs=("input", "axes"), exactness="sums"),
    Operator("AveragePool", "pooling", scales_with=(0,), exactness="sums"),
    Operator("GlobalAveragePool", "pooling", scales_with=(0,), exactness="sums"),
    Operator("GlobalLpPool", "pooling"),
    Operator(
        "GlobalMaxPool",
        "pooling",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements", "loses NaN", "largest"),
    ),
    Operator("LpPool", "pooling"),
    Operator(
        "MaxPool", "pooling", scales_with=(0,), exactness="exact", traits=("keeps elements", "loses NaN", "largest")
    ),
    Operator("MaxRoiPool", "pooling", exactness="exact"),
    Operator("MaxUnpool", "pooling", exactness="exact"),
    Operator("RoiAlign", "pooling"),
    Operator(
        "BatchNormalization",
        "normalization",
        inputs=("input", "scale", "bias", "running mean", "running variance"),
        multiplies=(1, 4),
        exactness="sums",
        defaults={"epsilon": 1e-05},
    ),
    Operator(
        "GroupNormalization",
        "normalization",
        inputs=("input", "scale", "bias"),
        multiplies=(1,),
        exactness="sums",
        traits=("whitens",),
    ),
    Operator(
        "InstanceNormalization",
        "normalization",
        inputs=("input", "scale", "bias"),
        multiplies=(1,),
        exactness="sums",
        traits=("whitens",),
        defaults={"epsilon": 1e-05},
    ),
    Operator("LRN", "normalization"),
    Operator(
        "LayerNormalization",
        "normalization",
        inputs=("input", "scale", "bias"),
        multiplies=(1,),
        exactness="sums",
        traits=("whitens",),
        defaults={"epsilon": 1e-05},
    ),
    Operator("LpNormalization", "normalization", exactness="sums", ulps=0.5),
    Operator("MeanVarianceNormalization", "normalization"),
    Operator(
        "RMSNormalization",
        "normalization",
        inputs=("input", "scale"),
        multiplies=(1,),
        exactness="sums",
        traits=("whitens",),
    ),
    Operator("Hardmax", "softmax", exactness="exact"),
    Operator("LogSoftmax", "softmax", exactness="sums", traits=("softmax inside",)),
    Operator("Softmax", "softmax", exactness="sums", traits=("softmax inside", "gives zeros")),
    Operator("ArgMax", "selection", exactness="exact", traits=("ignores scale", "largest")),
    Operator("ArgMin", "selection", exactness="exact", traits=("ignores scale", "smallest")),
    Operator(
        "NonMaxSuppression",
        "selection",
        inputs=("boxes", "scores", "largest number of boxes", "overlap threshold", "score threshold"),
        exactness="exact",
        traits=("counts", "sorts"),
    ),
    Operator("NonZero", "selection", exactness="exact", traits=("counts", "ignores scale")),
    Operator(
        "TopK",
        "selection",
        inputs=("input", "count"),
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements", "largest", "sorts"),
    ),
    Operator("Unique", "selection", exactness="exact", traits=("counts",)),
)
