"""Operators that move, copy, pick, join or convert elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.operators._records import Operator

if TYPE_CHECKING:
    from parityscope.operators._records import Moves, Positions, Trait


def _moving_operator(
    name: str,
    moves: Moves,
    *inputs: str,
    scales_with: Positions = (0,),
    traits: tuple[Trait, ...] = (),
    computes_with: tuple[str, ...] = (),
) -> Operator:
    """An operator that gives elements of its inputs as they are; `moves` says how it places them."""
    return Operator(
        name,
        "movement",
        inputs=inputs,
        moves=moves,
        computes_with=computes_with,
        scales_with=scales_with,
        exactness="exact",
        traits=("keeps elements", *traits),
    )


OPERATORS = (
    _moving_operator("CenterCropPad", "", "input", "shape"),
    _moving_operator("Compress", "picked", traits=("counts",)),
    _moving_operator("Concat", "", scales_with=None, traits=("chooses elements",)),
    _moving_operator("DepthToSpace", "permuted"),
    _moving_operator("Expand", "repeated", "input", "shape"),
    _moving_operator("Flatten", "in order"),
    _moving_operator("Gather", "picked", "table", "indices"),
    _moving_operator("GatherElements", "picked", "input", "indices"),
    _moving_operator("GatherND", "picked", "input", "indices"),
    _moving_operator("Identity", "in order", traits=("passes on", "computes nothing")),
    _moving_operator(
        "Pad",
        "",
        "input",
        "padding",
        "padding value",
        "axes",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("value",),
    ),
    _moving_operator("Reshape", "in order", "input", "shape"),
    _moving_operator("ReverseSequence", "permuted"),
    Operator("Scatter", "movement", exactness="exact"),
    _moving_operator(
        "ScatterElements",
        "",
        "input",
        "indices",
        "updates",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("reduction",),
    ),
    _moving_operator(
        "ScatterND",
        "",
        "input",
        "indices",
        "updates",
        scales_with=(0, 2),
        traits=("chooses elements",),
        computes_with=("reduction",),
    ),
    _moving_operator("Slice", "picked", "input", "starts", "ends", "axes", "steps"),
    _moving_operator("SpaceToDepth", "permuted"),
    _moving_operator("Split", "picked", "input", "sizes"),
    _moving_operator("Squeeze", "in order", "input", "axes"),
    Operator("TensorScatter", "movement", exactness="exact"),
    _moving_operator("Tile", "repeated", "input", "repeats"),
    _moving_operator("Transpose", "permuted"),
    _moving_operator("Trilu", "", "input", "diagonal"),
    _moving_operator("Unsqueeze", "in order", "input", "axes"),
    Operator("Cast", "conversion", exactness="exact", traits=("passes on", "computes nothing"), typed_by="to"),
    Operator("CastLike", "conversion", exactness="exact", traits=("passes on", "computes nothing")),
    Operator("BitCast", "other", exactness="exact", typed_by="to"),
)
