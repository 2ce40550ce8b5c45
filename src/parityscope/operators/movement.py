"""Operators that move, copy, pick, join or convert elements."""

from __future__ import annotations

from parityscope.operators._records import Operator

__all__ = ["OPERATORS"]

OPERATORS = (
    Operator(
        "CenterCropPad",
        "movement",
        inputs=("input", "shape"),
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator("Compress", "movement", moves="picked", scales_with=(0,), exactness="exact", traits=("keeps elements",)),
    Operator("Concat", "movement", scales_with=None, exactness="exact", traits=("keeps elements", "chooses elements")),
    Operator(
        "DepthToSpace", "movement", moves="permuted", scales_with=(0,), exactness="exact", traits=("keeps elements",)
    ),
    Operator(
        "Expand",
        "movement",
        inputs=("input", "shape"),
        moves="repeated",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator("Flatten", "movement", moves="in order", scales_with=(0,), exactness="exact", traits=("keeps elements",)),
    Operator(
        "Gather",
        "movement",
        inputs=("table", "indices"),
        moves="picked",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "GatherElements",
        "movement",
        inputs=("input", "indices"),
        moves="picked",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "GatherND",
        "movement",
        inputs=("input", "indices"),
        moves="picked",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "Identity",
        "movement",
        moves="in order",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements", "passes on", "computes nothing"),
    ),
    Operator(
        "Pad",
        "movement",
        inputs=("input", "padding", "padding value", "axes"),
        computes_with=("value",),
        scales_with=(0, 2),
        exactness="exact",
        traits=("keeps elements", "chooses elements"),
    ),
    Operator(
        "Reshape",
        "movement",
        inputs=("input", "shape"),
        moves="in order",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "ReverseSequence", "movement", moves="permuted", scales_with=(0,), exactness="exact", traits=("keeps elements",)
    ),
    Operator("Scatter", "movement", exactness="exact"),
    Operator(
        "ScatterElements",
        "movement",
        inputs=("input", "indices", "updates"),
        computes_with=("reduction",),
        scales_with=(0, 2),
        exactness="exact",
        traits=("keeps elements", "chooses elements"),
    ),
    Operator(
        "ScatterND",
        "movement",
        inputs=("input", "indices", "updates"),
        computes_with=("reduction",),
        scales_with=(0, 2),
        exactness="exact",
        traits=("keeps elements", "chooses elements"),
    ),
    Operator(
        "Slice",
        "movement",
        inputs=("input", "starts", "ends", "axes", "steps"),
        moves="picked",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "SpaceToDepth", "movement", moves="permuted", scales_with=(0,), exactness="exact", traits=("keeps elements",)
    ),
    Operator(
        "Split",
        "movement",
        inputs=("input", "sizes"),
        moves="picked",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "Squeeze",
        "movement",
        inputs=("input", "axes"),
        moves="in order",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator("TensorScatter", "movement", exactness="exact"),
    Operator(
        "Tile",
        "movement",
        inputs=("input", "repeats"),
        moves="repeated",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "Transpose", "movement", moves="permuted", scales_with=(0,), exactness="exact", traits=("keeps elements",)
    ),
    Operator(
        "Trilu",
        "movement",
        inputs=("input", "diagonal"),
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator(
        "Unsqueeze",
        "movement",
        inputs=("input", "axes"),
        moves="in order",
        scales_with=(0,),
        exactness="exact",
        traits=("keeps elements",),
    ),
    Operator("Cast", "conversion", exactness="exact", traits=("passes on", "computes nothing"), typed_by="to"),
    Operator("CastLike", "conversion", exactness="exact", traits=("passes on", "computes nothing")),
    Operator("BitCast", "other", exactness="exact", typed_by="to"),
)
